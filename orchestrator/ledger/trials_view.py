"""The view `trials`: one row per configuration, aggregated over its trainings."""

from collections.abc import Sequence

from attnsweep.orchestrator.ledger.sql import IS_JUDGED, identifier

_SQL = """
WITH judged AS (
    SELECT *, {is_judged} AS is_judged, CASE WHEN {is_judged} THEN coalesce(eval_loss, 'inf') END AS loss FROM trainings
), counted AS (
    SELECT
        sweep, trial, any_value(workload) AS workload, any_value(variant) AS variant,{parameters}
        count(*) AS n_trainings,
        count(*) FILTER (is_judged) AS n_judged,
        count(*) FILTER (outcome = 'failed') AS n_failed,
        count(*) FILTER (outcome = 'pruned') AS n_pruned,
        count(*) FILTER (stuck AND is_judged) AS n_stuck,
        count(*) FILTER (outcome = 'solved') AS n_solved,
        quantile_cont(loss, [0.25, 0.5, 0.75]) AS loss_quartiles,
        sum(train_seconds) AS seconds,
        min(finished_at) AS first_finished_at,
        max(finished_at) AS last_finished_at
    FROM judged
    GROUP BY sweep, trial
)
SELECT
    * EXCLUDE (loss_quartiles, seconds, first_finished_at, last_finished_at),
    n_stuck / nullif(n_judged, 0) AS stuck_rate,
    n_solved / nullif(n_judged, 0) AS solved_rate,
    CASE WHEN isfinite(loss_quartiles[1]) THEN loss_quartiles[1] END AS loss_q25,
    CASE WHEN isfinite(loss_quartiles[2]) THEN loss_quartiles[2] END AS loss_median,
    CASE WHEN isfinite(loss_quartiles[3]) THEN loss_quartiles[3] END AS loss_q75,
    seconds, first_finished_at, last_finished_at
FROM counted
ORDER BY sweep, trial
"""

_CONSTANT = """
        CASE WHEN count({name}) = count(*) AND min({name}) = max({name}) THEN min({name}) END AS {name},"""


def trials_view(columns: Sequence[str]) -> str:
    """The view's SQL: one row per trial, from the view `trainings`.

    A `param_<name>` column is null if the trial's trainings differ in it. Failed and pruned trainings count only in
    `n_trainings`, `n_failed`, `n_pruned` and `seconds`. Losses are `eval_loss`; a loss that is not finite ranks above
    all others, and a quartile that falls on one is null.

    Args:
        columns: Names of the columns of `trainings`.
    """
    parameters = (_CONSTANT.format(name=identifier(name)) for name in columns if name.startswith("param_"))
    return _SQL.format(parameters="".join(parameters), is_judged=IS_JUDGED)
