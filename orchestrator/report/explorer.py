"""The data of the report's interactive section *Explore*: the trials and trainings as compact columns, which a script
in the page draws."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from markupsafe import Markup
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.labels import outcome_order, plain_label, value_label
from attnsweep.orchestrator.analysis.learning_curves import MotionCurve, read_motion_curves
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram
from attnsweep.orchestrator.analysis.rates.bins import is_logarithmic, parameters_of
from attnsweep.orchestrator.analysis.rates.by_parameter import swept_names
from attnsweep.orchestrator.ledger.views import IS_JUDGED, outcomes_of, param_column
from attnsweep.orchestrator.report.facts import UNKNOWN, ReferenceLevel
from attnsweep.orchestrator.report.regions import Plane, Regions
from attnsweep.orchestrator.report.samples import Sample, read_samples
from attnsweep.orchestrator.report.templating import coded, counts, measures, script_json, short_text
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Dimension
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import Outcome

_MOST = 5
"""The most trials in each list of extreme trials, such as those with the lowest median loss."""
_MOST_TRIALS, _MOST_TRAININGS = 100_000, 300_000
"""The most trials and trainings in the page: a page with this many has 6 MB, and a browser draws it without a pause."""
LOSS = "loss_median"
"""The one axis that is not a parameter: a trial's median loss, a column of the view `trials`."""
_TRAININGS = """
select trial, replicate, outcome, coalesce(outcome_detail, '') as detail, eval_loss from trainings
order by trial, replicate
"""


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """A quantity for the axes of the plots in the section *Explore*: a swept parameter or the median loss, with one
    value for each trial.

    Attributes:
        name: The parameter's name, or `loss_median`.
        log: Whether the axis is logarithmic.
        values: One for each trial: a number (NaN for null), or an index into `choices`.
        choices: The labels of the values; empty if the values are numbers.
    """

    name: str
    log: bool
    values: NDArray[np.float64]
    choices: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "name": short_text(self.name),
            "label": short_text("median evaluation loss" if self.name == LOSS else plain_label(self.name)),
            "choices": [*map(short_text, self.choices)],
            "log": self.log,
            "values": counts(self.values.astype(np.int64)) if self.choices else measures(self.values),
        }


@dataclass(frozen=True, eq=False, slots=True)
class Points:
    """The trials, sorted by number, and the trainings, sorted by trial and replicate, that the report's section
    *Explore* plots.

    Attributes:
        trials: The numbers of the trials.
        axes: The swept parameters, then the median loss.
        trainings: The columns `trial`, `replicate`, `outcome`, `detail` and `eval_loss`.
        judged: The outcomes whose trainings count in rates.
        outcomes: The description of each outcome, by label.
    """

    trials: NDArray[np.int64]
    axes: tuple[Axis, ...]
    trainings: pa.Table
    judged: frozenset[str]
    outcomes: Mapping[str, Outcome]

    def axis(self, name: str) -> Axis:
        return next(axis for axis in self.axes if axis.name == name)

    def only(self, places: NDArray[np.int64]) -> "Points":
        """Selects the trials at the given ascending positions, and the trainings of these trials."""
        axes = tuple(replace(axis, values=axis.values[places]) for axis in self.axes)
        chosen = np.isin(self.trainings["trial"].to_numpy(), self.trials[places])
        return replace(self, trials=self.trials[places], axes=axes, trainings=self.trainings.filter(pa.array(chosen)))

    def as_json(self) -> dict[str, Any]:
        trial_of_row = self.trainings["trial"].to_numpy()
        outcomes = sorted(self.trainings["outcome"].unique().to_pylist(), key=outcome_order)
        _, outcome = coded(self.trainings["outcome"].to_pylist(), outcomes)
        details, detail = coded(self.trainings["detail"].to_pylist(), [])
        sizes = np.searchsorted(trial_of_row, self.trials, "right") - np.searchsorted(trial_of_row, self.trials, "left")
        return {
            "trial": counts(self.trials),
            "size": counts(sizes),
            "axes": [axis.as_json() for axis in self.axes],
            "replicate": counts(self.trainings["replicate"].to_numpy().astype(np.int64)),
            "outcome": counts(outcome),
            "detail": counts(detail),
            "loss": measures(_numbers(self.trainings["eval_loss"])),
            "outcomes": [
                {
                    "name": short_text(name),
                    "colour": self.outcomes.get(name, UNKNOWN).colour,
                    "stuck": self.outcomes.get(name, UNKNOWN).is_stuck,
                    "judged": name in self.judged,
                }
                for name in outcomes
            ],
            "details": [*map(short_text, details)],
        }


@dataclass(frozen=True, slots=True)
class Extremes:
    """A short list of the trials that are extreme in one respect, such as those with the lowest median loss.

    Attributes:
        title: In what respect the trials are extreme, in words.
        measure: The name of the measure in `values`.
        trials: The positions of the trials among all trials.
        values: The measure of each of the trials.
    """

    title: str
    measure: str
    trials: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Explorer:
    """The data of one sweep that the explorer (an interactive script in the report) draws.

    Attributes:
        points: The trials and trainings in the page.
        axes: The names of the two axes that are drawn at first.
        extremes: The lists of extreme trials.
        samples: The trainings that are shown with their curve and the roles of their heads.
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
        """A sentence that says which trials the page contains if it does not contain all; else empty."""
        if len(self.points.trials) == self.n_trials:
            return ""
        return (
            f"The page has {len(self.points.trials):,} of {self.n_trials:,} trials: random ones, and the extremes of"
            " all. "
        )

    def as_json(self, place: str, levels: Sequence[ReferenceLevel] = ()) -> Markup:
        """Formats the data of the report's interactive section *Explore* as JSON for a `script` element.

        Args:
            place: The sweep's directory, as an argument of commands.
            levels: The reference levels (losses known in advance).
        """
        names = [axis.name for axis in self.points.axes]
        data: dict[str, Any] = self.points.as_json() | {
            "place": place,
            "first_axes": [names.index(name) for name in self.axes],
            "extremes": [asdict(extremes) for extremes in self.extremes],
            "samples": [sample.as_json() for sample in self.samples],
            "curves": [_curve_json(curve) for curve in self.curves],
            "levels": [{"name": short_text(level.name), "value": level.median} for level in levels],
            "heads": self.has_heads,
            "maps": [],
        }
        return script_json(data)


def _curve_json(curve: MotionCurve) -> dict[str, Any]:
    points = [(point.step, point.low, point.median, point.high) for point in curve.points]
    # JSON has no infinity, so a quartile that is infinite because of diverged trainings becomes null.
    quartiles = [[float(f"{number:.5g}") if math.isfinite(number) else None for number in point] for point in points]
    return {
        "outcome": short_text(curve.outcome),
        "motion": curve.motion,
        "n": curve.n_trainings,
        "quartiles": quartiles,
    }


def read_explorer(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, regions: Regions | None, plane: Plane | None
) -> Explorer | None:
    """Reads the data of the report's interactive section *Explore* from a ledger; `None` if there is nothing to draw.

    The two axes of `regions` are the ones drawn at first. The phase diagram of `plane` says where the probability is
    1/2.
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
    """Chooses the trials that the page contains: all or, if these are too many, the extreme ones and some random
    ones."""
    n_trials = len(points.trials)
    n_shown = min(n_trials * _MOST_TRAININGS // max(points.trainings.num_rows, _MOST_TRAININGS), _MOST_TRIALS)
    if n_shown == n_trials:
        return np.arange(n_trials)
    lot = np.random.default_rng(0).permutation(n_trials)[:n_shown]
    return np.union1d(lot, [at for order in extremes for at in order.trials]).astype(np.int64)


def _extremes(points: Points, diagram: PhaseDiagram | None) -> tuple[Extremes, ...]:
    """Lists up to five extreme trials of each kind, such as those with the lowest median loss. Trials with equal values
    are ordered by number."""
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


def read_points(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> Points | None:
    """Reads the trials and trainings that the section *Explore* plots; `None` if there are none, or if the sweep varies
    no parameter."""
    known = set(parameters_of(connection))
    names = [name for name in swept_names(spec) if name in known]
    columns = "".join(f", {param_column(name)}" for name in names)
    trials = connection.sql(f"select trial, loss_median{columns} from trials order by trial").to_arrow_table()
    if not names or not len(trials):
        return None
    loss = _numbers(trials[LOSS])
    positive = loss[loss > 0]
    log = len(positive) == int(np.isfinite(loss).sum()) and is_logarithmic([], LOSS, positive.tolist())
    axes = [_axis(spec, name, trials[f"param_{name}"]) for name in names] + [Axis(LOSS, log, loss)]
    rows = connection.sql(_TRAININGS).to_arrow_table()
    judged = connection.execute(f"select distinct outcome from trainings where {IS_JUDGED}").fetchall()
    numbers = trials["trial"].to_numpy().astype(np.int64)
    return Points(numbers, tuple(axes), rows, frozenset(outcome for (outcome,) in judged), outcomes_of(connection))


def _axis(spec: Sweep, name: str, column: pa.ChunkedArray) -> Axis:
    choices = _choices(spec.parameters()[name])
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if is_number and not choices:
        numbers = _numbers(column)
        return Axis(name, is_logarithmic([spec], name, numbers[np.isfinite(numbers)].tolist()), numbers)
    values, places = coded(column.to_pylist(), choices)
    return Axis(name, False, places.astype(np.float64), tuple(value_label(value) for value in values))


def _choices(dimension: Dimension) -> tuple[object, ...]:
    if isinstance(dimension, Conditional):
        return _choices(dimension.then) or _choices(dimension.otherwise)
    return tuple(dimension.choices) if isinstance(dimension, Categorical) else ()


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Converts a column of a table to float64. Null, and values that are not finite, become NaN."""
    values = np.array(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)
