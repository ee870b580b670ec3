"""Collects the data on one sweep for the page's script."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import duckdb
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.learning_curves import MotionCurve, read_motion_curves
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram
from attnsweep.orchestrator.report.explorer.head_maps import TrainingMaps
from attnsweep.orchestrator.report.explorer.points import LOSS, Points, read_points, text
from attnsweep.orchestrator.report.explorer.samples import Sample, read_samples
from attnsweep.orchestrator.report.facts import ReferenceLevel
from attnsweep.orchestrator.report.regions import Plane, Regions
from attnsweep.orchestrator.report.script import script_json
from attnsweep.search_spaces.sweep import Sweep

_MOST = 5
_MOST_TRIALS, _MOST_TRAININGS = 100_000, 300_000
"""The most trials and trainings in the page: with this many it has 6 MB, and a browser draws them without a pause."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """A short list of extreme trials in one order, such as those with the lowest median loss.

    Attributes:
        title: The order in words.
        measure: The name of the measure in `values`.
        trials: The places of the trials among all trials.
        values: The measure of each of the trials.
    """

    title: str
    measure: str
    trials: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Explorer:
    """The data of one sweep that the explorer, the report's interactive script, draws.

    Attributes:
        points: The trials and trainings in the page.
        axes: The names of the two axes that are drawn at first.
        extremes: The lists of extreme trials.
        samples: The trainings that are shown in full.
        curves: The median curves that are drawn in front of the curves of `samples`.
        has_heads: Whether attention heads were scored.
        n_trials: The number of the sweep's trials, of which `points` may have only some.
    """

    points: Points
    axes: tuple[str, str]
    extremes: tuple[Extremes, ...]
    samples: tuple[Sample, ...]
    curves: tuple[MotionCurve, ...]
    has_heads: bool
    n_trials: int

    @property
    def lot(self) -> str:
        """A sentence about which trials the page contains; empty if it contains all."""
        if len(self.points.trials) == self.n_trials:
            return ""
        return (
            f"The page has {len(self.points.trials):,} of {self.n_trials:,} trials: random ones, and the extremes of"
            " all. "
        )

    def as_json(self, place: str, levels: Sequence[ReferenceLevel] = (), maps: Sequence[TrainingMaps] = ()) -> Markup:
        """Formats the explorer's data as JSON for a `script` element.

        Args:
            place: The sweep's directory, as an argument of commands.
            levels: The reference levels.
            maps: The attention maps of some trainings.
        """
        names = [axis.name for axis in self.points.axes]
        data: dict[str, Any] = self.points.as_json() | {
            "place": place,
            "first_axes": [names.index(name) for name in self.axes],
            "extremes": [asdict(extremes) for extremes in self.extremes],
            "samples": [sample.as_json() for sample in self.samples],
            "curves": [_curve_json(curve) for curve in self.curves],
            "levels": [{"name": text(level.name), "value": level.median} for level in levels],
            "heads": self.has_heads or bool(maps),
            "maps": [training_maps.as_json() for training_maps in maps],
        }
        return script_json(data)


def _curve_json(curve: MotionCurve) -> dict[str, Any]:
    points = [(point.step, point.low, point.median, point.high) for point in curve.points]
    # JSON has no infinity, so an infinite quartile, which diverged trainings may cause, becomes null.
    quartiles = [[float(f"{number:.5g}") if math.isfinite(number) else None for number in point] for point in points]
    return {"outcome": text(curve.outcome), "motion": curve.motion, "n": curve.n_trainings, "quartiles": quartiles}


def read_explorer(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, regions: Regions | None, plane: Plane | None
) -> Explorer | None:
    """Reads the explorer's data from a ledger; `None` if there is nothing to draw.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        regions: The regions, whose axes are drawn at first.
        plane: The plane, whose phase diagram says where the boundary is.
    """
    points = read_points(connection, spec)
    if points is None:
        return None
    chosen = [axis.parameter for axis in regions.axes] if regions else [points.axes[0].name]
    x, y = [*chosen, LOSS][:2]
    extremes = _extremes(points, plane.asked if plane else None)
    trials = points.trials[[at for order in extremes for at in order.trials]].tolist()
    has_heads = connection.execute("select 1 from heads limit 1").fetchone() is not None
    samples = read_samples(connection, trials, heads=has_heads)
    n_trials, shown = len(points.trials), _shown(points, extremes)
    extremes = tuple(replace(order, trials=tuple(np.searchsorted(shown, order.trials).tolist())) for order in extremes)
    return Explorer(points.only(shown), (x, y), extremes, samples, read_motion_curves(connection), has_heads, n_trials)


def _shown(points: Points, extremes: Sequence[Extremes]) -> NDArray[np.int64]:
    """Chooses the trials that the page contains: all of them or, if there are too many, random ones and the extreme
    ones."""
    n_trials = len(points.trials)
    n_shown = min(n_trials * _MOST_TRAININGS // max(points.trainings.num_rows, _MOST_TRAININGS), _MOST_TRIALS)
    if n_shown == n_trials:
        return np.arange(n_trials)
    lot = np.random.default_rng(0).permutation(n_trials)[:n_shown]
    return np.union1d(lot, [at for order in extremes for at in order.trials]).astype(np.int64)


def _extremes(points: Points, diagram: PhaseDiagram | None) -> tuple[Extremes, ...]:
    """Lists up to five extreme trials of each kind. Trials that tie are ordered by number.

    Args:
        points: The trials.
        diagram: The phase diagram of the report's question, whose model says where the boundary is.
    """
    loss = points.axis(LOSS).values
    orders = [
        _first("lowest median loss", LOSS, loss, loss),
        _first("highest median loss that is finite", LOSS, -loss, loss),
    ]
    if diagram is not None and diagram.surface is not None and diagram.surface.fits:
        places = (points.axis(diagram.x.name).values, points.axis(diagram.y.name).values)
        share = diagram.surface.at(*places)[0]
        label = diagram.ending.label
        title = f"nearest the boundary: the model's share of {label} is nearest 1/2"
        orders.append(_first(title, f"share of {label} by the model", np.abs(share - 0.5), share))
    return tuple(order for order in orders if order.trials)


def _first(title: str, measure: str, by: NDArray[np.float64], values: NDArray[np.float64]) -> Extremes:
    order = np.argsort(by, kind="stable")[:_MOST]
    order = order[np.isfinite(by[order])]
    return Extremes(title, measure, tuple(order.tolist()), tuple(values[order].tolist()))
