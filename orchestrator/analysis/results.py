"""The results of a sweep, for the end of a run, `--json` and MLflow."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.labels import value_label
from attnsweep.orchestrator.analysis.rates.by_parameter import (
    SOLVED,
    STUCK,
    loss_median,
    rate_of,
    rates_by,
    swept_names,
)
from attnsweep.orchestrator.analysis.rates.intervals import Rate, pooling, rate_label
from attnsweep.orchestrator.analysis.rates.outcomes import outcome_counts, pruned_note
from attnsweep.orchestrator.analysis.role_emergence import role_histories, role_rates, step_label
from attnsweep.orchestrator.analysis.tables import Row
from attnsweep.orchestrator.ledger.trial import Told, complete_among, ended_in_turn, judging_columns
from attnsweep.orchestrator.ledger.views import param_column
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.measured import LossQuantile
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import NEGATIVE_LOSS

MAX_SHOWN = 20
"""Trials of a Pareto front that a sentence names."""
_STUCK_RATIO = 2.0
"""A training that took this many times the steps predicted for its escape is stuck, not slow."""


@dataclass(frozen=True, slots=True)
class Preferred:
    """The best trial by one objective, or the Pareto front of several.

    Attributes:
        best: `trial`, `value` of the `objective`, `parameters`, its stuck `rate`, and `n_equal` trials of this value.
            `None` with several objectives, or if no complete trial meets the constraints.
        front: `trial`, `values` of the objectives and `parameters` of the trials than which no other is better in one
            objective and at least as good in the others, ordered by the first; `None` with one objective.
        n_complete: Complete trials, except those whose trainings all failed or were pruned.
        n_feasible: Of these, trials that meet the constraints; `None` without constraints.
    """

    best: Row | None
    front: list[Row] | None
    n_complete: int
    n_feasible: int | None
    constraints: tuple[str, ...]

    def sentences(self) -> Iterator[str]:
        n = self.n_complete
        if self.constraints:
            yield f"{self.n_feasible:,} of {n:,} trials meet the constraints: {', '.join(self.constraints)}"
        if self.front is not None:
            first = ", ".join(f"#{trial['trial']}" for trial in self.front[:MAX_SHOWN])
            yield f"{len(self.front):,} of {n:,} trials are on the Pareto front: {first}"
        if (best := self.best) is not None and best["n_equal"] > 1:
            yield f"{best['n_equal']:,} trials are equally good: {best['objective']} {best['value']:.4g}"
        elif best is not None:
            values = "  ".join(f"{name}={value_label(value)}" for name, value in best["parameters"].items())
            place = f" at {values}" if values else ""
            yield f"best trial #{best['trial']}: {best['objective']} {best['value']:.4g}{place}"


def read_preferred(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> Preferred:
    rows = judging_columns(connection)
    rows = rows.filter(pc.field("trial").isin(complete_among(rows, spec.replicates)))
    told = {trial: each for trial, ended in ended_in_turn(rows) if (each := ended.told(spec)) is not None}
    feasible = {trial: each for trial, each in told.items() if each.is_feasible}
    is_one = len(spec.objectives) == 1
    return Preferred(
        _best(connection, spec, rows, feasible) if is_one else None,
        None if is_one else _front(connection, spec, feasible),
        len(told),
        len(feasible) if spec.constraints else None,
        spec.constraints,
    )


def on_front(losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Marks the points than which no other is lower in one coordinate and at most equal in all others."""
    distinct, row_of_distinct = np.unique(losses, axis=0, return_inverse=True)
    is_on_front, left = np.zeros(len(distinct), dtype=bool), np.arange(len(distinct))
    while left.size:
        # The points are sorted, so those that dominate one come before it; and none in `left` is dominated by the front
        # so far. So the first is on the front.
        is_on_front[left[0]] = True
        left = left[(distinct[left] < distinct[left[0]]).any(axis=1)]
    return is_on_front[row_of_distinct.reshape(-1)]


def _best(connection: duckdb.DuckDBPyConnection, spec: Sweep, rows: pa.Table, told: Mapping[int, Told]) -> Row | None:
    if not told:
        return None
    [objective] = spec.objectives
    value_of = {trial: each.values[0] for trial, each in told.items()}
    value = min(value_of.values()) if objective.direction == "minimize" else max(value_of.values())
    equal = [trial for trial in value_of if value_of[trial] == value]
    ended = dict(ended_in_turn(rows.filter(pc.field("trial").isin(equal))))
    trial = min(ended, key=lambda number: (ended[number].value(LossQuantile()), number))
    judged = ended[trial].judged
    rate = pooling(spec)([(len(judged), sum(training.stuck for training in judged))])
    parameters = _parameters(connection, [trial], spec)[trial]
    best = {"trial": trial, "value": value, "objective": objective.label, "n_equal": len(equal)}
    return best | {"parameters": parameters, "rate": rate}


def _front(connection: duckdb.DuckDBPyConnection, spec: Sweep, told: Mapping[int, Told]) -> list[Row]:
    if not told:
        return []
    signs = [1.0 if objective.direction == "minimize" else -1.0 for objective in spec.objectives]
    losses = np.array([each.values for each in told.values()]) * signs
    names = [objective.label for objective in spec.objectives]
    ranked = sorted(
        (*loss, trial) for trial, loss, is_in in zip(told, losses.tolist(), on_front(losses), strict=True) if is_in
    )
    trials = [int(row[-1]) for row in ranked]
    parameters = _parameters(connection, trials, spec)
    return [
        {"trial": each, "values": dict(zip(names, told[each].values, strict=True)), "parameters": parameters[each]}
        for each in trials
    ]


def _parameters(
    connection: duckdb.DuckDBPyConnection, trials: Sequence[int], spec: Sweep
) -> dict[int, dict[str, Scalar]]:
    names = swept_names(spec)
    columns = "".join(f", any_value({param_column(name)})" for name in names)
    rows = connection.execute(
        f"select trial{columns} from trainings where trial in ({', '.join(map(str, trials))}) group by trial"
    ).fetchall()
    return {trial: dict(zip(names, values, strict=True)) for trial, *values in rows}


def read_stuck_or_slow(connection: duckdb.DuckDBPyConnection) -> Row | None:
    """Stuck trainings by `ratio`, the steps taken over those predicted for leaving their start: `stuck` from 2 on,
    `slow` below 1 at a degenerate zero, else `unknown`; with the median ratio. `None` without predictions."""
    [(n, stuck, slow, ratio)] = connection.execute(
        f"""
        select count(*), count(*) filter (ratio >= {_STUCK_RATIO}),
            count(*) filter (ratio < 1 and outcome = 'degenerate_zero'), median(ratio)
        from (select outcome, n_steps / predicted_escape_step as ratio from trainings where stuck)
        """
    ).fetchall()
    return None if ratio is None else {"stuck": stuck, "slow": slow, "unknown": n - stuck - slow, "ratio": ratio}


def stuck_or_slow_sentence(row: Row) -> str:
    return (
        f"stuck or slow: of {row['stuck'] + row['slow'] + row['unknown']} stuck trainings, {row['stuck']} took at least"
        f" {_STUCK_RATIO:g} times the steps predicted for leaving their start, {row['slow']} stopped earlier,"
        f" and {row['unknown']} are not decided"
    )


@dataclass(frozen=True, slots=True)
class SweepResults:
    """What the ledger says of a sweep.

    Attributes:
        stuck_rate_by: The rows of `rates_by`.
        roles: The rows of `role_rates`, without the curves; `None` without attention heads.
        n_negative: Trainings that diverged by a negative loss.
    """

    n_trainings: int
    outcomes: dict[str, int]
    stuck_rate: Rate
    solved_rate: Rate
    stuck_or_slow: Row | None
    loss_median: float | None
    stuck_rate_by: list[Row]
    preferred: Preferred
    roles: list[Row] | None
    n_negative: int

    def sentences(self) -> Iterator[str]:
        yield f"stuck rate {rate_label(self.stuck_rate)}, 95% interval over trials"
        if self.n_trainings and not self.outcomes.get("solved"):
            yield "no training was solved"
        if note := pruned_note(self.outcomes):
            yield note
        if self.n_negative:
            yield (
                f"negative loss: {self.n_negative:,} trainings diverged by it; if it may be negative, set"
                " loss_may_be_negative"
            )
        if self.stuck_or_slow is not None:
            yield stuck_or_slow_sentence(self.stuck_or_slow)
        yield from self.preferred.sentences()

    def markdown(self) -> str:
        rows = [("outcome", "trainings"), ("---", "---"), *self.outcomes.items()]
        table = "\n".join(f"| {outcome} | {n} |" for outcome, n in rows)
        return "\n\n".join([table, *map(str.capitalize, self.sentences())]) + "\n"


def role_cells(role: Row) -> tuple[str, ...]:
    """Role, layer, rate, share of heads, median step of emergence."""
    return (
        *(role["role"], role["layer_name"], rate_label(Rate.of(role))),
        *(f"{role['head_share']:.1%}", step_label(role)),
    )


def read_results(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> SweepResults:
    outcomes = outcome_counts(connection)
    negative = "select count(*) from trainings where outcome_detail = ?"
    ((n_negative,),) = connection.execute(negative, [NEGATIVE_LOSS]).fetchall()
    histories = role_histories(connection)
    return SweepResults(
        n_trainings=sum(outcomes.values()),
        outcomes=outcomes,
        stuck_rate=rate_of(connection, STUCK, spec),
        solved_rate=rate_of(connection, SOLVED, spec),
        stuck_or_slow=read_stuck_or_slow(connection),
        loss_median=loss_median(connection),
        stuck_rate_by=rates_by(connection, [spec]).to_pylist(),
        preferred=read_preferred(connection, spec),
        roles=role_rates(connection, spec, histories).drop_columns("curve").to_pylist() if histories else None,
        n_negative=n_negative,
    )
