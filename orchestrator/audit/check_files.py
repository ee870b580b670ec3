"""Checks of the ledger by itself: its files, and that each row of a table belongs to a recorded training."""

import duckdb

from attnsweep.orchestrator.audit.check_trials import COPIED, RESTORE, RESUME
from attnsweep.orchestrator.audit.problems import Faults, Problem
from attnsweep.orchestrator.ledger.fragments import TABLES, fragment_names, is_overtaken
from attnsweep.orchestrator.ledger.verification import verify
from attnsweep.orchestrator.storage.place import Place

_MISFITS = """
with seen as (select distinct training_id, trial, replicate from {table})
select coalesce(trainings.trial, seen.trial), coalesce(trainings.replicate, seen.replicate), seen.trial is null
from trainings full join seen using (training_id, trial, replicate)
where trainings.trial is null or seen.trial is null and trainings.outcome <> 'failed'
order by all
"""

_ATTEMPTS = 5
"""Attempts to list the files; a compaction in between makes one fail."""
_ORPHANS = "trainings with rows in {} only"
_BARE = "trainings that did not fail and have no curves"


def check_links(connection: duckdb.DuckDBPyConnection) -> tuple[Problem, ...]:
    """Rows of `curves` and `heads` without their training, trainings without their curves."""
    faults = Faults({_ORPHANS.format("curves"): COPIED, _ORPHANS.format("heads"): COPIED, _BARE: RESTORE})
    for table in ("curves", "heads"):
        for trial, replicate, is_bare in connection.execute(_MISFITS.format(table=table)).fetchall():
            # Not every variant of a workload has heads.
            if not is_bare or table == "curves":
                faults.add(_BARE if is_bare else _ORPHANS.format(table), f"{trial}/{replicate}")
    return faults.problems()


def count_files(place: Place) -> int:
    """Parquet files of all tables."""
    return sum(len(place.names(table)) for table in TABLES)


def check_files(place: Place, spec_sha256: str, *, finished: bool) -> tuple[Problem, ...]:
    """Files that are damaged or of another sweep, and left-over files. The latter count in a finished sweep only:
    otherwise a writer may still be at work."""
    for _ in range(_ATTEMPTS):
        names = fragment_names(place)
        problems = verify(place, spec_sha256)
        if not is_overtaken(place, names):
            break
    return tuple(
        Problem(str(each), "remove it with: attnsweep compact DIR" if each.is_left_over else RESUME)
        for each in problems
        if finished or not each.is_left_over
    )
