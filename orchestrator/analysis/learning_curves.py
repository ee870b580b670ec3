"""Learning curves: the median and quartiles of the evaluation loss by step, for each group of trainings, in SQL."""

from dataclasses import dataclass

import duckdb

from attnsweep.orchestrator.analysis.labels import outcome_order

_METRIC = "eval_loss"
_MOST_STEPS = 100
"""If there are more distinct steps than this, they are grouped: trainings of many lengths are probed at many steps."""

_AT_STEPS = """
select trial, replicate, step, value from curves where metric = ?
"""
_IN_BINS = """
select trial, replicate, coalesce(ceil(exp2(floor(4 * log2(nullif(step, 0))) / 4)), 0)::int as step,
    arg_max(value, curves.step) as value
from curves where metric = ? group by all
"""
_QUARTILES = """
with probed as materialized ({probed}),
ended as (
    select trial, replicate, max(step) as last_step, arg_max(value, step) as value
    from probed semi join (select trial, replicate from trainings where outcome = 'solved') using (trial, replicate)
    group by all
),
followed as (
    from probed union all
    select trial, replicate, grid.step, value
    from ended join (select distinct step from probed) as grid on grid.step > last_step
),
whole as (select {group}, count(*) as n_whole from trainings group by {group})
select {group}, step, count(*) as n, quantile_cont({value}, [0.25, 0.5, 0.75]) as quartiles
from followed join trainings using (trial, replicate) join whole using ({group})
group by {group}, step, n_whole having 2 * count(*) >= n_whole order by {group}, step
"""
"""A solved training may end early; after its end it counts with its last loss."""


@dataclass(frozen=True, slots=True)
class CurveQuartiles:
    """The quartiles of the loss at one step, over `n` trainings."""

    step: int
    n: int
    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """The loss of the trainings with one outcome.

    Attributes:
        outcome: The outcome.
        points: The quartiles at steps where at least half of the trainings have a finite loss.
    """

    outcome: str
    points: tuple[CurveQuartiles, ...]

    @property
    def n_trainings(self) -> int:
        """The largest number of trainings at any point."""
        return max(point.n for point in self.points)


def quartile_curves(
    connection: duckdb.DuckDBPyConnection, group: str, value: str = "value"
) -> dict[str, tuple[CurveQuartiles, ...]]:
    """The quartiles by step for each group, at steps where at least half of the group has a finite loss.

    A solved training that ended keeps its last loss. If more than 100 distinct steps were probed, there are four points
    per doubling, each at the last probe in it.

    Args:
        connection: From `Ledger.connect`.
        group: A column of `trainings`.
        value: The quantity whose quartiles are computed: an SQL expression in `value` (the loss) and columns of
            `trainings`.
    """
    ((n_steps,),) = connection.execute("select count(distinct step) from curves where metric = ?", [_METRIC]).fetchall()
    query = _QUARTILES.format(probed=_AT_STEPS if n_steps <= _MOST_STEPS else _IN_BINS, group=group, value=value)
    points: dict[str, list[CurveQuartiles]] = {}
    for label, step, n, quartiles in connection.execute(query, [_METRIC]).fetchall():
        points.setdefault(label, []).append(CurveQuartiles(step, n, *quartiles))
    return {label: tuple(found) for label, found in points.items()}


def read_learning_curves(connection: duckdb.DuckDBPyConnection) -> tuple[LearningCurve, ...]:
    """One curve for each outcome that has probes, in the order of `OUTCOMES`.

    Args:
        connection: From `Ledger.connect`.
    """
    curves = quartile_curves(connection, "outcome")
    return tuple(LearningCurve(outcome, curves[outcome]) for outcome in sorted(curves, key=outcome_order))
