"""All trials and trainings of a sweep, as columns for the page's script."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.figures import GREY
from attnsweep.orchestrator.analysis.labels import clipped, outcome_order, plain_label, value_label
from attnsweep.orchestrator.analysis.rates.bins import is_logarithmic, parameters_of
from attnsweep.orchestrator.analysis.rates.by_parameter import swept_names
from attnsweep.orchestrator.ledger.views import IS_JUDGED, outcomes_of, param_column
from attnsweep.orchestrator.report.portable import without_folders
from attnsweep.orchestrator.report.script import coded, counts, measures
from attnsweep.search_spaces.dimensions import Categorical, Conditional, Dimension
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import Outcome

LOSS = "loss_median"
"""The axis beside the parameters: a trial's median loss, a column of the view `trials`."""
_TRAININGS = """
select trial, replicate, outcome, coalesce(outcome_detail, '') as detail, eval_loss from trainings
order by trial, replicate
"""


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """A quantity with one value for each trial: a swept parameter or the median loss.

    Attributes:
        name: The parameter's name, or `loss_median`.
        log: Whether the axis is logarithmic.
        values: (T,) one for each trial: numbers with NaN for null, or places in `choices`.
        choices: The labels of the values; empty if the values are numbers.
    """

    name: str
    log: bool
    values: NDArray[np.float64]
    choices: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        column = counts(self.values.astype(np.int64)) if self.choices else measures(self.values)
        label = "median evaluation loss" if self.name == LOSS else plain_label(self.name)
        shown = {"name": text(self.name), "label": text(label), "choices": [text(choice) for choice in self.choices]}
        return shown | {"log": self.log, "values": column}


@dataclass(frozen=True, eq=False, slots=True)
class Points:
    """All trials, sorted by number, and all trainings, sorted by trial and replicate, as the explorer plots them.

    Attributes:
        trials: (T,) the trials' numbers.
        axes: The swept parameters, then the median loss.
        trainings: The columns `trial`, `replicate`, `outcome`, `detail` and `eval_loss`.
        judged: The outcomes that count in rates.
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
        """Selects the trials at the given positions, which must be ascending, and their trainings."""
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
                    "name": text(name),
                    "colour": self.outcomes[name].colour if name in self.outcomes else GREY,
                    "stuck": name in self.outcomes and self.outcomes[name].is_stuck,
                    "judged": name in self.judged,
                }
                for name in outcomes
            ],
            "details": [text(detail_text) for detail_text in details],
        }


def read_points(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> Points | None:
    """Reads trials and trainings from a ledger; `None` if there are none, or if the sweep varies no parameter.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
    """
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


def text(value: object) -> str:
    """Shortens a text for the page, and removes the names of this machine's folders."""
    return clipped(without_folders(str(value)), 60)


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
    """Converts a column to float64. Null, and values that are not finite, become NaN."""
    values = np.array(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)
