"""Learning curves in SQL: the median and quartiles of the evaluation loss by step, for each group of trainings."""

from dataclasses import dataclass
from typing import Any

import duckdb

from attnsweep.orchestrator.analysis.labels import outcome_order

_LOSS = "eval_loss"
MOST_TRAININGS = 10_000
"""The most trainings of a group whose quartiles are computed; more would look the same. Those with the lowest
`training_id` are taken: a random draw, because it is a hash."""
_MOST_STEPS = 100
"""If trainings were probed at more distinct steps than this, the steps are grouped into bins. This happens if trainings
have many lengths."""

_AT_STEPS = """
select trial, replicate, step, value from curves semi join chosen using (trial, replicate) where metric = ?
"""
_IN_BINS = """
select trial, replicate, coalesce(ceil(pow(2, floor(4 * log2(nullif(step, 0))) / 4)), 0)::int as step,
    arg_max(value, curves.step) as value
from curves semi join chosen using (trial, replicate) where metric = ? group by all
"""
_QUARTILES = """
with chosen as (
    from trainings where {where}
    qualify row_number() over (partition by {group} order by training_id, trial, replicate) <= {most}
),
probed as materialized ({probed}),
grid as (select distinct {group}, step from probed join chosen using (trial, replicate)),
ended as (
    select trial, replicate, {group}, coalesce(max(step), -1) as last_step,
        if(diverged_step is null, arg_max(value, step), 'inf') as value
    from chosen left join probed using (trial, replicate) where outcome = 'solved' or diverged_step is not null
    group by trial, replicate, {group}, diverged_step
),
followed as (
    from probed union all
    select trial, replicate, grid.step, value from ended join grid using ({group}) where grid.step > last_step
),
whole as (select {group}, count(*) as n_whole from chosen group by {group})
select {group}, step, count(*) filter (isfinite({value})) as n, quantile_cont({value}, [0.25, 0.5, 0.75]) as quartiles
from followed join chosen using (trial, replicate) join whole using ({group})
group by {group}, step, n_whole having 2 * n >= n_whole order by {group}, step
"""
"""Computes quartiles by step. A solved training that ended early counts with its last loss at later steps, a diverged
one with an infinite loss."""


@dataclass(frozen=True, slots=True)
class CurveQuartiles:
    """The quartiles of the loss over a group of trainings at one step."""

    step: int
    n: int
    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """The quartiles of the loss by step, over the trainings with one outcome."""

    outcome: str
    points: tuple[CurveQuartiles, ...]

    @property
    def n_trainings(self) -> int:
        """The most with a finite loss at any step."""
        return max(point.n for point in self.points)


def quartile_curves(
    connection: duckdb.DuckDBPyConnection,
    group: str,
    value: str = "value",
    where: str = "true",
    *,
    metric: str = _LOSS,
) -> dict[Any, tuple[CurveQuartiles, ...]]:
    """Quartiles by step for each group, at steps where at least half of it has a finite loss.

    A solved training that ended keeps its last loss, and one that diverged has an infinite loss from then on: otherwise
    late steps would show the slow trainings alone.

    Args:
        group: A column of `trainings`.
        value: The quantity whose quartiles are computed: an SQL expression in `value` (the loss) and columns of
            `trainings`.
    """
    ((n_steps,),) = connection.execute("select count(distinct step) from curves where metric = ?", [metric]).fetchall()
    query = _QUARTILES.format(
        probed=_AT_STEPS if n_steps <= _MOST_STEPS else _IN_BINS,
        group=group,
        value=value,
        where=where,
        most=MOST_TRAININGS,
    )
    points: dict[Any, list[CurveQuartiles]] = {}
    for label, step, n, quartiles in connection.execute(query, [metric]).fetchall():
        points.setdefault(label, []).append(CurveQuartiles(step, n, *quartiles))
    return {label: tuple(quartiles_by_step) for label, quartiles_by_step in points.items()}


def read_learning_curves(connection: duckdb.DuckDBPyConnection) -> tuple[LearningCurve, ...]:
    """For each outcome, in the order of `OUTCOMES`."""
    curves = quartile_curves(connection, "outcome")
    return tuple(LearningCurve(outcome, curves[outcome]) for outcome in sorted(curves, key=outcome_order))
