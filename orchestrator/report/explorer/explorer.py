"""The data of the page's script on one sweep."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
from markupsafe import Markup

from attnsweep.orchestrator.analysis.learning_curves import MotionCurve, read_motion_curves
from attnsweep.orchestrator.report.explorer.extremes import Extremes, find_extremes
from attnsweep.orchestrator.report.explorer.head_maps import TrainingMaps
from attnsweep.orchestrator.report.explorer.points import LOSS, Points, read_points, text
from attnsweep.orchestrator.report.explorer.samples import RULE, Sample, read_samples
from attnsweep.orchestrator.report.facts import ReferenceLevel
from attnsweep.orchestrator.report.plane import Plane
from attnsweep.orchestrator.report.regions import Regions
from attnsweep.search_spaces.sweep import Sweep


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
    """

    points: Points
    axes: tuple[str, str]
    extremes: tuple[Extremes, ...]
    samples: tuple[Sample, ...]
    curves: tuple[MotionCurve, ...]
    has_heads: bool

    @property
    def rule(self) -> str:
        """Which trainings are shown in full."""
        return RULE

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
            "extremes": [
                {"title": one.title, "measure": one.measure, "trials": one.trials, "values": one.values}
                for one in self.extremes
            ],
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


def script_json(data: object) -> Markup:
    """JSON that cannot end the `script` element in which it stands, nor begin a comment or another one there."""
    written = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Markup(written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


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
    extremes = find_extremes(points, plane.stuck if plane else None)
    trials = points.trials[[at for one in extremes for at in one.trials]].tolist()
    has_heads = connection.execute("select 1 from heads limit 1").fetchone() is not None
    samples = read_samples(connection, trials, heads=has_heads)
    return Explorer(points, (x, y), extremes, samples, read_motion_curves(connection), has_heads)
