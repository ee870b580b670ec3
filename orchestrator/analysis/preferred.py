"""The trials that a sweep's objectives prefer: the best one, or of several objectives the Pareto front."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.answer import Record
from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.analysis.rates.by_parameter import swept_names
from attnsweep.orchestrator.analysis.rates.intervals import Rate, trial_rate
from attnsweep.orchestrator.ledger.sql import param_column
from attnsweep.orchestrator.ledger.trial import Told, complete_among, ended_in_turn, judging_columns
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.measured import LossQuantile
from attnsweep.search_spaces.sweep import Sweep

MOST_SHOWN = 20
"""The most trials of a Pareto front that a table for people has."""


@dataclass(frozen=True, slots=True)
class BestTrial(Record):
    """The trial that the sweep's objective prefers.

    Attributes:
        trial: The trial's number.
        value: The trial's objective.
        parameters: The trial's values of the parameters that the sweep varies.
        rate: The trial's stuck rate.
        objective: The objective's name.
    """

    trial: int
    value: float
    parameters: dict[str, Scalar]
    rate: Rate
    objective: str

    def as_json(self) -> dict[str, Any]:
        """The fields; unlike elsewhere, those of the rate too."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class FrontTrial(Record):
    """A trial that no other is better than in one objective and as good as in the others.

    Attributes:
        trial: The trial's number.
        values: Its objectives, by their names.
        parameters: Its values of the parameters that the sweep varies.
    """

    trial: int
    values: dict[str, float]
    parameters: dict[str, Scalar]

    def labels(self) -> list[str]:
        """Its values and parameters, for people."""
        return [*(f"{each:.4g}" for each in self.values.values()), *map(value_label, self.parameters.values())]


@dataclass(frozen=True, slots=True)
class Preferred:
    """What the objectives prefer among the complete trials.

    Attributes:
        best: The best trial; `None` of several objectives, or if no trial is complete and meets the constraints.
        front: Of several objectives the Pareto front, the best in the first one first; `None` of one objective.
        told: Of several objectives what the study is told of each complete trial, by its number.
        n_complete: The number of complete trials, without those of which all trainings failed.
        n_feasible: How many of these meet the constraints; `None` without constraints.
        constraints: Their texts.
    """

    best: BestTrial | None
    front: tuple[FrontTrial, ...] | None
    told: Mapping[int, Told]
    n_complete: int
    n_feasible: int | None
    constraints: tuple[str, ...]

    def sentences(self) -> Iterator[str]:
        """How many trials meet the constraints, and how many are on the front."""
        n = self.n_complete
        if self.constraints:
            yield f"{self.n_feasible:,} of {n:,} trials meet the constraints: {', '.join(self.constraints)}"
        if self.front is not None:
            yield f"{len(self.front):,} of {n:,} trials are on the Pareto front"


def read_preferred(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> Preferred:
    """Reads it from a sweep's ledger."""
    rows = judging_columns(connection)
    rows = rows.filter(pc.field("trial").isin(complete_among(rows, spec.replicates)))
    told = {trial: found for trial, each in ended_in_turn(rows) if (found := each.told(spec)) is not None}
    feasible = {trial: found for trial, found in told.items() if found.is_feasible}
    numbers = len(told), len(feasible) if spec.constraints else None, spec.constraints
    if len(spec.objectives) == 1:
        return Preferred(_best(connection, spec, rows, feasible), None, {}, *numbers)
    return Preferred(None, _front(connection, spec, feasible), told, *numbers)


def on_front(losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points no other is below in one coordinate and not above in any: those that are equal all are, or none.

    Args:
        losses: One row for each point, one column for each objective; less is better.
    """
    distinct, place = np.unique(losses, axis=0, return_inverse=True)
    found, left = np.zeros(len(distinct), dtype=bool), np.arange(len(distinct))
    while left.size:
        # They are in lexicographic order, so nothing that is left is as good as the first of them.
        found[left[0]] = True
        left = left[(distinct[left] < distinct[left[0]]).any(axis=1)]
    return found[place.reshape(-1)]


def _best(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, rows: pa.Table, told: Mapping[int, Told]
) -> BestTrial | None:
    """The trial with the best objective; of equals, the one with the lowest median loss."""
    if not told:
        return None
    [objective] = spec.objectives
    values = {trial: each.values[0] for trial, each in told.items()}
    value = min(values.values()) if objective.direction == "minimize" else max(values.values())
    equal = [trial for trial, each in values.items() if each == value]
    chosen = ended_in_turn(rows.filter(pc.field("trial").isin(equal)))
    losses = {trial: each.value(LossQuantile()) for trial, each in chosen}
    trial = min(losses, key=lambda each: (losses[each], each))
    [(_, ended)] = ended_in_turn(rows.filter(pc.field("trial") == trial))
    judged = ended.judged
    rate = trial_rate(spec.replicates, sum(each.stuck for each in judged), len(judged))
    return BestTrial(trial, value, _parameters(connection, [trial], spec)[trial], rate, objective.label)


def _front(connection: duckdb.DuckDBPyConnection, spec: Sweep, told: Mapping[int, Told]) -> tuple[FrontTrial, ...]:
    if not told:
        return ()
    signs = [1.0 if each.direction == "minimize" else -1.0 for each in spec.objectives]
    losses = np.array([each.values for each in told.values()]) * signs
    names = [each.label for each in spec.objectives]
    ranked = sorted(
        (*loss, trial) for trial, loss, is_in in zip(told, losses.tolist(), on_front(losses), strict=True) if is_in
    )
    trials = [int(each[-1]) for each in ranked]
    parameters = _parameters(connection, trials, spec)
    return tuple(
        FrontTrial(trial, dict(zip(names, told[trial].values, strict=True)), parameters[trial]) for trial in trials
    )


def _parameters(
    connection: duckdb.DuckDBPyConnection, trials: Sequence[int], spec: Sweep
) -> dict[int, dict[str, Scalar]]:
    names = swept_names(spec)
    columns = "".join(f", any_value({param_column(name)})" for name in names)
    rows = connection.execute(
        f"select trial{columns} from trainings where trial in ({', '.join(map(str, trials))}) group by trial"
    ).fetchall()
    return {trial: dict(zip(names, values, strict=True)) for trial, *values in rows}
