"""When the events that a workload declares first held, and the delay from one to another."""

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.onset.share_by_step import OnsetTimes
from attnsweep.orchestrator.ledger.sql import IS_JUDGED, identifier

_PREFIX = "event_"
_EVENTS = """
select trial, {event} is not null as came, greatest(coalesce({event}, n_steps) - {start}, 0) as step,
    param_n_steps - {start} as most, diverged_step is not null or n_steps < param_n_steps or outcome = 'solved' as ended
from trainings where {judged} and {start} is not null order by trial, replicate
"""


def event_names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Lists the events that a ledger has columns for, in the workload's order."""
    columns = [name for name, *_ in connection.execute("select * from trainings limit 0").description]
    return [name.removeprefix(_PREFIX) for name in columns if name.startswith(_PREFIX)]


def event_times(connection: duckdb.DuckDBPyConnection, event: str, after: str | None = None) -> OnsetTimes:
    """Reads the step at which an event first held in each training. Failed and pruned trainings are left out.

    A training in which the event did not hold is censored at its last step, because the event might have held later.
    But a training that diverged, stopped before its budget or was solved counts as without the event up to the last
    step of all, as in `outcome_onsets`.

    Args:
        connection: From `Ledger.connect`.
        event: One of `event_names`.
        after: Another event. If given, steps count from where this other event first held, trainings in which it never
            held are left out, and an `event` that held before it, or at the same probe, has step 0.
    """
    start = "0" if after is None else identifier(_PREFIX + after)
    query = _EVENTS.format(event=identifier(_PREFIX + event), start=start, judged=IS_JUDGED)
    return censored_times(connection.execute(query).fetchnumpy())


def censored_times(rows: Mapping[str, NDArray[Any]]) -> OnsetTimes:
    """Makes times of trainings, (R,) by name; one that ended for good without reaching it counts up to the last step.

    Args:
        rows: `trial`; `came`, whether it was reached; `step`, where it was reached or the training ended; `most`, the
            steps that the training was given; `ended`, whether the training ended for good.
    """
    came_R, ended_R = np.asarray(rows["came"], np.bool_), np.asarray(rows["ended"], np.bool_)
    step_R, most_R = (np.asarray(rows[name], np.int64) for name in ("step", "most"))
    last = max(int(step_R.max(initial=0)), int(most_R.max(initial=0)))
    return OnsetTimes(np.asarray(rows["trial"], np.int64), np.where(ended_R & ~came_R, last, step_R), came_R)
