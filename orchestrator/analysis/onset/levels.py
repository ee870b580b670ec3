"""When the loss of a training first fell below its reference levels."""

import duckdb

from attnsweep.orchestrator.analysis.onset.events import censored_times
from attnsweep.orchestrator.analysis.onset.share_by_step import OnsetTimes
from attnsweep.orchestrator.ledger.sql import IS_JUDGED, identifier
from attnsweep.workloads.vocabulary import AT_LEVEL

_PREFIX = "level_"
_TIMES = """
select trial, below.step is not null as came, coalesce(below.step, n_steps) as step, param_n_steps as most,
    diverged_step is not null or n_steps < param_n_steps or outcome = 'solved' as ended
from trainings left join (
    select trial, replicate, min(step) as step
    from curves join (select trial, replicate, {level} as level from trainings) using (trial, replicate)
    where metric = 'eval_loss' and value < level - {share} * abs(level) group by all
) below using (trial, replicate)
where {judged} order by trial, replicate
"""


def level_names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Lists the reference levels of the trainings of a ledger, in the workload's order."""
    columns = [name for name, *_ in connection.execute("select * from trainings limit 0").description]
    return [name.removeprefix(_PREFIX) for name in columns if name.startswith(_PREFIX)]


def level_times(connection: duckdb.DuckDBPyConnection, level: str) -> OnsetTimes:
    """Finds the first probe of each training whose `eval_loss` is more than 1% below a level.

    Failed and pruned trainings are left out. Who is censored where is as for `event_times`.

    Args:
        connection: From `Ledger.connect`.
        level: One of `level_names`.
    """
    query = _TIMES.format(level=identifier(_PREFIX + level), share=AT_LEVEL, judged=IS_JUDGED)
    return censored_times(connection.execute(query).fetchnumpy())
