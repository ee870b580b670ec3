"""The data of the page's script on one sweep."""

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
"""In the page: it has 6 MB with so many, and a browser draws them without a pause."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """The first trials in one order.

    Attributes:
        title: The order in words.
        measure: What `values` are.
        trials: Places among all trials.
        values: The measure of each.
    """

    title: str
    measure: str
    trials: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Explorer:
    """What the script draws of one sweep.

    Attributes:
        points: All trials and trainings.
        axes: The names of the axes that it draws first.
        extremes: The trials that it lists.
        samples: The trainings that it shows in full.
        curves: What it draws before the curves of these.
        has_heads: Whether attention heads were scored.
        n_trials: The trials of the sweep, of which `points` may be some.
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
        """Which trials it shows, if not all."""
        if len(self.points.trials) == self.n_trials:
            return ""
        return (
            f"The page has {len(self.points.trials):,} of {self.n_trials:,} trials, chosen by lot, and the extremes of"
            " all. "
        )

    def as_json(self, place: str, levels: Sequence[ReferenceLevel] = (), maps: Sequence[TrainingMaps] = ()) -> Markup:
        """The data as JSON that may stand in a `script` element.

        Args:
            place: The sweep's directory as a command names it.
            levels: The reference levels.
            maps: The attention maps of some trainings.
        """
        names = [each.name for each in self.points.axes]
        data: dict[str, Any] = self.points.as_json() | {
            "place": place,
            "first_axes": [names.index(name) for name in self.axes],
            "extremes": [asdict(each) for each in self.extremes],
            "samples": [each.as_json() for each in self.samples],
            "curves": [_curve_json(each) for each in self.curves],
            "levels": [{"name": text(each.name), "value": each.median} for each in levels],
            "heads": self.has_heads or bool(maps),
            "maps": [each.as_json() for each in maps],
        }
        return script_json(data)


def _curve_json(curve: MotionCurve) -> dict[str, Any]:
    points = [(each.step, each.low, each.median, each.high) for each in curve.points]
    # JSON has no infinity: a quartile of trainings that diverged is null.
    quartiles = [[float(f"{each:.5g}") if math.isfinite(each) else None for each in point] for point in points]
    return {"outcome": text(curve.outcome), "motion": curve.motion, "n": curve.n_trainings, "quartiles": quartiles}


def read_explorer(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, regions: Regions | None, plane: Plane | None
) -> Explorer | None:
    """Reads the data from a ledger; `None` if there is nothing to draw.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        regions: Its axes are drawn first.
        plane: Its phase diagram says where the boundary is.
    """
    points = read_points(connection, spec)
    if points is None:
        return None
    chosen = [axis.parameter for axis in regions.axes] if regions else [points.axes[0].name]
    x, y = [*chosen, LOSS][:2]
    extremes = _extremes(points, plane.asked if plane else None)
    trials = points.trials[[at for one in extremes for at in one.trials]].tolist()
    has_heads = connection.execute("select 1 from heads limit 1").fetchone() is not None
    samples = read_samples(connection, trials, heads=has_heads)
    n_trials, shown = len(points.trials), _shown(points, extremes)
    extremes = tuple(replace(each, trials=tuple(np.searchsorted(shown, each.trials).tolist())) for each in extremes)
    return Explorer(points.only(shown), (x, y), extremes, samples, read_motion_curves(connection), has_heads, n_trials)


def _shown(points: Points, extremes: Sequence[Extremes]) -> NDArray[np.int64]:
    """The places of the trials that the page has: of many some by lot, which their numbers decide, and the extremes."""
    n_trials = len(points.trials)
    n_shown = min(n_trials * _MOST_TRAININGS // max(points.trainings.num_rows, _MOST_TRAININGS), _MOST_TRIALS)
    if n_shown == n_trials:
        return np.arange(n_trials)
    lot = np.random.default_rng(0).permutation(n_trials)[:n_shown]
    return np.union1d(lot, [at for each in extremes for at in each.trials]).astype(np.int64)


def _extremes(points: Points, diagram: PhaseDiagram | None) -> tuple[Extremes, ...]:
    """At most five trials of each kind; equal ones in the order of their numbers.

    Args:
        points: The trials.
        diagram: The phase diagram of what the report asks about; its model says where the boundary is.
    """
    loss = points.axis(LOSS).values
    found = [
        _first("lowest median loss", LOSS, loss, loss),
        _first("highest median loss that is finite", LOSS, -loss, loss),
    ]
    if diagram is not None and diagram.surface is not None and diagram.surface.fits:
        places = (points.axis(diagram.x.name).values, points.axis(diagram.y.name).values)
        share = diagram.surface.at(*places)[0]
        label = diagram.ending.label
        title = f"nearest the boundary: the model's share of {label} is nearest 1/2"
        found.append(_first(title, f"share of {label} by the model", np.abs(share - 0.5), share))
    return tuple(each for each in found if each.trials)


def _first(title: str, measure: str, by: NDArray[np.float64], values: NDArray[np.float64]) -> Extremes:
    order = np.argsort(by, kind="stable")[:_MOST]
    order = order[np.isfinite(by[order])]
    return Extremes(title, measure, tuple(order.tolist()), tuple(values[order].tolist()))
