"""The results of a sweep, as the end of a run prints them and `--json` and MLflow contain them."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.answer import Record, markdown_table
from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.analysis.rates.answers import outcome_counts, pruned_note
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    ParameterRates,
    loss_median,
    rates_by,
    solved_rate,
    stuck_rate,
    swept_names,
)
from attnsweep.orchestrator.analysis.rates.intervals import Rate, rate_label, trial_rate
from attnsweep.orchestrator.analysis.role_results import RoleResults, read_role_results
from attnsweep.orchestrator.ledger.trial import Told, complete_among, ended_in_turn, judging_columns
from attnsweep.orchestrator.ledger.views import param_column
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.measured import LossQuantile
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import NEGATIVE_LOSS

MOST_SHOWN = 20
"""The most trials of a Pareto front that a printed table shows."""


@dataclass(frozen=True, slots=True)
class BestTrial(Record):
    """The trial with the best value of the objective; `rate` is its stuck rate."""

    trial: int
    value: float
    parameters: dict[str, Scalar]
    rate: Rate
    objective: str

    def as_json(self) -> dict[str, Any]:
        """The rate becomes a nested record."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class FrontTrial(Record):
    """A trial than which no other is better in one objective and at least as good in the others."""

    trial: int
    values: dict[str, float]
    parameters: dict[str, Scalar]

    def labels(self) -> list[str]:
        """Objectives and parameters, for a printed table."""
        return [*(f"{value:.4g}" for value in self.values.values()), *map(value_label, self.parameters.values())]


@dataclass(frozen=True, slots=True)
class Preferred:
    """The best trial by one objective, or the Pareto front of several.

    Attributes:
        best: `None` with several objectives, or if no trial is complete and meets the constraints.
        front: Ordered by the first objective, the best first; `None` with one objective.
        told: With several objectives, the values for the study of each complete trial, by number.
        n_complete: The number of complete trials, except trials whose trainings all failed.
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
    rows = judging_columns(connection)
    rows = rows.filter(pc.field("trial").isin(complete_among(rows, spec.replicates)))
    told = {trial: trial_told for trial, ended in ended_in_turn(rows) if (trial_told := ended.told(spec)) is not None}
    feasible = {trial: trial_told for trial, trial_told in told.items() if trial_told.is_feasible}
    numbers = len(told), len(feasible) if spec.constraints else None, spec.constraints
    if len(spec.objectives) == 1:
        return Preferred(_best(connection, spec, rows, feasible), None, {}, *numbers)
    return Preferred(None, _front(connection, spec, feasible), told, *numbers)


def on_front(losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Marks the points than which no other is lower in one coordinate and at most equal in all others."""
    distinct, place = np.unique(losses, axis=0, return_inverse=True)
    is_on_front, left = np.zeros(len(distinct), dtype=bool), np.arange(len(distinct))
    while left.size:
        # `np.unique` has sorted the points, so a point comes after all points that dominate it. No point in `left` is
        # dominated by an earlier point of the front. So the first point in `left` is on the Pareto front.
        is_on_front[left[0]] = True
        left = left[(distinct[left] < distinct[left[0]]).any(axis=1)]
    return is_on_front[place.reshape(-1)]


def _best(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, rows: pa.Table, told: Mapping[int, Told]
) -> BestTrial | None:
    if not told:
        return None
    [objective] = spec.objectives
    values = {trial: trial_told.values[0] for trial, trial_told in told.items()}
    value = min(values.values()) if objective.direction == "minimize" else max(values.values())
    equal = [trial for trial, trial_told in values.items() if trial_told == value]
    chosen = ended_in_turn(rows.filter(pc.field("trial").isin(equal)))
    losses = {trial: ended.value(LossQuantile()) for trial, ended in chosen}
    trial = min(losses, key=lambda number: (losses[number], number))
    [(_, ended)] = ended_in_turn(rows.filter(pc.field("trial") == trial))
    judged = ended.judged
    rate = trial_rate(spec.replicates, sum(training.stuck for training in judged), len(judged))
    return BestTrial(trial, value, _parameters(connection, [trial], spec)[trial], rate, objective.label)


def _front(connection: duckdb.DuckDBPyConnection, spec: Sweep, told: Mapping[int, Told]) -> tuple[FrontTrial, ...]:
    if not told:
        return ()
    signs = [1.0 if objective.direction == "minimize" else -1.0 for objective in spec.objectives]
    losses = np.array([trial_told.values for trial_told in told.values()]) * signs
    names = [objective.label for objective in spec.objectives]
    ranked = sorted(
        (*loss, trial) for trial, loss, is_in in zip(told, losses.tolist(), on_front(losses), strict=True) if is_in
    )
    trials = [int(row[-1]) for row in ranked]
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


_WELL_PAST = 2.0


@dataclass(frozen=True, slots=True)
class StuckOrSlow(Record):
    """How many stuck trainings would have stayed stuck with more steps, and how many were merely slow.

    Attributes:
        unknown: Trainings without a prediction, and trainings that are neither `stuck` nor `slow` by these rules.
        ratio: The median ratio of trained to predicted steps; infinite if most of the trainings are predicted to leave
            at once.
    """

    stuck: int
    slow: int
    unknown: int
    ratio: float

    def sentence(self) -> str:
        return (
            f"stuck or slow: of {self.stuck + self.slow + self.unknown} stuck trainings, {self.stuck} took at least"
            f" {_WELL_PAST:g} times the steps predicted for leaving their start, {self.slow} stopped earlier,"
            f" and {self.unknown} are not decided"
        )


def read_stuck_or_slow(connection: duckdb.DuckDBPyConnection) -> StuckOrSlow | None:
    ((n, stuck, slow, ratio),) = connection.execute(
        f"""
        select count(*), count(*) filter (ratio >= {_WELL_PAST}),
            count(*) filter (ratio < 1 and outcome = 'degenerate_zero'), median(ratio)
        from (select outcome, n_steps / predicted_escape_step as ratio from trainings
              where stuck)
        """
    ).fetchall()
    return None if ratio is None else StuckOrSlow(stuck, slow, n - stuck - slow, ratio)


def read_negative_note(connection: duckdb.DuckDBPyConnection) -> str | None:
    """How many trainings diverged at a negative loss; `None` if none did."""
    query = "select count(*) from trainings where outcome_detail = ?"
    ((n,),) = connection.execute(query, [NEGATIVE_LOSS]).fetchall()
    return (
        f"negative loss: {n:,} trainings diverged by it; if it may be negative, set loss_may_be_negative" if n else None
    )


@dataclass(frozen=True, slots=True)
class SweepResults(Record):
    """The results of a sweep, from its ledger.

    Attributes:
        stuck_or_slow: How many stuck trainings would be freed by more steps; `None` without predictions.
        negative_note: How many trainings ended at a negative loss, in a sentence; `None` if none did.
    """

    outcomes: dict[str, int]
    stuck: Rate
    solved: Rate
    loss_median: float | None
    by_parameter: tuple[ParameterRates, ...]
    preferred: Preferred
    roles: RoleResults | None
    stuck_or_slow: StuckOrSlow | None
    negative_note: str | None

    json_keys = (
        *("n_trainings", "outcomes", "stuck_rate=stuck", "solved_rate=solved", "stuck_or_slow", "loss_median"),
        *("stuck_rate_by=by_parameter", "best_trial=best", "pareto_front=front", "roles", "role_rates_by"),
    )

    @property
    def best(self) -> BestTrial | None:
        """`None` with several objectives, or if no trial is complete."""
        return self.preferred.best

    @property
    def front(self) -> tuple[FrontTrial, ...] | None:
        """`None` with one objective."""
        return self.preferred.front

    @property
    def n_trainings(self) -> int:
        return sum(self.outcomes.values())

    @property
    def pruned_note(self) -> str | None:
        """How many trainings were pruned and so are not counted; `None` if none were."""
        return pruned_note(self.outcomes)

    @property
    def role_rates_by(self) -> list[dict[str, Any]] | None:
        """How often each role occurs in the bins of each parameter, for JSON."""
        return None if self.roles is None else self.roles.by_parameter_as_json()

    def markdown(self) -> str:
        return "\n\n".join(self._blocks()) + "\n"

    def _blocks(self) -> Iterator[str]:
        yield markdown_table(("outcome", "trainings"), self.outcomes.items())
        yield f"Stuck rate: {rate_label(self.stuck)} (95% interval, trainings of one trial not taken as independent)"
        if self.pruned_note is not None:
            yield self.pruned_note.capitalize()
        if self.negative_note is not None:
            yield self.negative_note.capitalize()
        if self.stuck_or_slow is not None:
            yield self.stuck_or_slow.sentence().capitalize()
        yield from self.preferred.sentences()
        if self.front:
            names = (*self.front[0].values, *self.front[0].parameters)
            yield markdown_table(
                ("trial", *names), ((trial.trial, *trial.labels()) for trial in self.front[:MOST_SHOWN])
            )
        if self.best is not None:
            values = ", ".join(f"{name}={value_label(value)}" for name, value in self.best.parameters.items())
            yield f"Best trial: {self.best.trial} ({values}), {self.best.objective} {self.best.value:.4g}"
        for rates in self.by_parameter:
            rows = [(bin_.label, bin_.n_trials, rate_label(bin_.rate)) for bin_ in rates.bins]
            yield markdown_table((rates.title, "trials", "stuck rate (95% interval)"), rows)
        if self.roles is not None:
            yield from self.roles.markdown_tables()


def read_results(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> SweepResults:
    return SweepResults(
        outcome_counts(connection),
        stuck_rate(connection, spec),
        solved_rate(connection, spec),
        loss_median(connection),
        rates_by(connection, spec),
        read_preferred(connection, spec),
        read_role_results(connection, spec),
        read_stuck_or_slow(connection),
        read_negative_note(connection),
    )
