"""The ledger in itself: its files, and that each table's rows are of trainings that are there."""

import duckdb

from orchestrator.audit.trials import COPIED, RESTORE
from orchestrator.audit.verdict import Faults, Problem
from orchestrator.ledger.fragments import TABLES, open_file
from orchestrator.places.location import Location, place_at
from workloads.errors import UserError

_MISFITS = """
with seen as (select distinct training_id, trial, replicate from {table})
select coalesce(trainings.trial, seen.trial), coalesce(trainings.replicate, seen.replicate), seen.trial is null
from trainings full join seen using (training_id, trial, replicate)
where trainings.trial is null or seen.trial is null and outcome <> 'failed'
order by all
"""

_ORPHANS = "trainings that are in {} alone"
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


def count_files(root: Location) -> int:
    """Parquet files of all tables."""
    return sum(len(place_at(root).names(table)) for table in TABLES)


def check_files(root: Location, spec_sha256: str) -> tuple[Problem, ...]:
    """Files that cannot be opened, or are not this sweep's."""
    return tuple(_files(root, spec_sha256))


def _files(root: Location, spec_sha256: str) -> list[Problem]:
    place = place_at(root)
    problems = []
    for table in TABLES:
        for name in place.names(table):
            try:
                found = open_file(place, table, name).stamp.spec_sha256
            except FileNotFoundError:
                # Merged into another since it was listed.
                continue
            except UserError as damage:
                problems.append(Problem(f"{damage.subject}: {damage.given}", damage.mend))
            else:
                if found != spec_sha256:
                    path = place.file_name(table, name)
                    problems.append(Problem(f"{path}: rows of the spec {found[:12]}, not {spec_sha256[:12]}", COPIED))
    return problems
