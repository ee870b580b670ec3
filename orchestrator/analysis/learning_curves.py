"""Learning curves in SQL: the median and quartiles of a metric by step, for each group of trainings."""

import duckdb
import pyarrow as pa

from attnsweep.orchestrator.analysis.labels import outcome_order

_LOSS = "eval_loss"
MAX_TRAININGS = 10_000
"""Of a group; more would look the same. Those with the lowest `training_id` are taken: a random draw, because it is a
hash."""
_MAX_STEPS = 100
"""More distinct probe steps, as of trainings of many lengths, are grouped into four bins for each doubling; a training
has its last value in the bin."""

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
select {group}, list({{step: step, n: n, low: quartiles[1], median: quartiles[2], high: quartiles[3]}} order by step)
    as curve
from (
    select {group}, step, count(*) filter (isfinite(value)) as n,
        quantile_cont(value, [0.25, 0.5, 0.75]) as quartiles
    from followed join chosen using (trial, replicate) join whole using ({group})
    group by {group}, step, n_whole having 2 * n >= n_whole
) group by {group} order by {group}
"""


def quartile_curves(
    connection: duckdb.DuckDBPyConnection, group: str, where: str = "true", metric: str = _LOSS
) -> pa.Table:
    """One row for each value of a column, with its `curve` of quartiles by step, where at least half of its trainings
    have a finite value.

    A solved training that ended keeps its last value, and one that diverged has an infinite one from then on: otherwise
    late steps would show the slow trainings alone.
    """
    ((n_steps,),) = connection.execute("select count(distinct step) from curves where metric = ?", [metric]).fetchall()
    probed = _AT_STEPS if n_steps <= _MAX_STEPS else _IN_BINS
    query = _QUARTILES.format(probed=probed, group=group, where=where, most=MAX_TRAININGS)
    return connection.sql(query, params=[metric]).to_arrow_table()


def learning_curves(connection: duckdb.DuckDBPyConnection, metric: str = _LOSS, where: str = "true") -> pa.Table:
    """By outcome, in the order of `outcome_order`."""
    curves = quartile_curves(connection, "outcome", where=where, metric=metric)
    outcomes = curves["outcome"].to_pylist()
    order = sorted(range(len(outcomes)), key=lambda row: outcome_order(outcomes[row]))
    return curves.take(pa.array(order, pa.int64()))
