"""Checks the ledger alone: its files, and that each row of a table belongs to a recorded training."""

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
"""How often listing the files is attempted; a compaction meanwhile makes an attempt fail."""
_ORPHANS = "trainings with rows in {} only"
_BARE = "trainings that did not fail and have no curves"


def check_links(connection: duckdb.DuckDBPyConnection) -> tuple[Problem, ...]:
    """Finds rows of `curves` and `heads` that belong to no training, and trainings without curves."""
    faults = Faults({_ORPHANS.format("curves"): COPIED, _ORPHANS.format("heads"): COPIED, _BARE: RESTORE})
    for table in ("curves", "heads"):
        for trial, replicate, is_bare in connection.execute(_MISFITS.format(table=table)).fetchall():
            # Rows without entries in the table `heads` are no problem, because not every variant of a workload has
            # heads.
            if not is_bare or table == "curves":
                faults.add(_BARE if is_bare else _ORPHANS.format(table), f"{trial}/{replicate}")
    return faults.problems()


def count_files(place: Place) -> int:
    """Returns the number of Parquet files of all tables."""
    return sum(len(place.names(table)) for table in TABLES)


def check_files(place: Place, spec_sha256: str, *, finished: bool) -> tuple[Problem, ...]:
    """Finds damaged files, files of other sweeps, and left-over files. Left-over files count only if the sweep is
    finished, because a writer may be at work otherwise."""
    for _ in range(_ATTEMPTS):
        names = fragment_names(place)
        problems = verify(place, spec_sha256)
        if not is_overtaken(place, names):
            break
    return tuple(
        Problem(str(problem), "remove it with: attnsweep compact DIR" if problem.is_left_over else RESUME)
        for problem in problems
        if finished or not problem.is_left_over
    )
