"""Checks a sweep of several drivers: each shard alone, and that all of them are shards of this sweep."""

from collections.abc import Callable, Iterator

from attnsweep.orchestrator.analysis.machines import environments_in
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.audit.check_machines import check_machines
from attnsweep.orchestrator.audit.problems import Audit, Check, Problem
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory
from attnsweep.workloads.errors import UserError

_ALIKE = ("sweep", "spec_sha256", "code", "files", "defaults", "engine")
"""Fields in which the records of all shards must equal the sweep's record."""


def audit_shards(directory: SweepDirectory, audit: Callable[[Place], Audit]) -> Audit:
    """Audits all shards of a sweep. A shard that has not begun or not ended is no problem; the sweep then counts as
    unfinished.

    Args:
        directory: The sweep.
        audit: Audits one shard.
    """
    audits = {part.of_shard.index: audit(part.place) for part in directory.parts}
    finished = all(part.finished for part in audits.values()) and len(audits) == directory.shards
    unknown = any(part.finished is None for part in audits.values())
    stages = dict.fromkeys(stage for part in audits.values() for stage in part.counts)
    shortfall = f": {directory.shortfall}" if not unknown and directory.shortfall else ""
    line = f"{len(directory.parts)} of {directory.shards} shards have begun{shortfall}"
    spec = f"{SWEEP_FILE}: the spec as it was written, sha256 {directory.spec_sha256[:12]}"
    return Audit(
        directory=str(directory.place),
        sweep=directory.sweep,
        finished=None if unknown else finished,
        counts={stage: _total(part.counts.get(stage) for part in audits.values()) for stage in stages},
        checks=(
            Check(line, tuple(_strangers(directory))),
            Check(spec),
            *(_of_shard(index, part) for index, part in audits.items()),
            *_machines(directory),
        ),
    )


def _machines(directory: SweepDirectory) -> list[Check]:
    try:
        with SweepData.open(directory.place).reading() as connection:
            trainings = environments_in(connection)
    except UserError:
        # If a shard cannot be read, the audit of that shard has reported the error already.
        return []
    return check_machines(trainings, directory)


def _total(counts: Iterator[int | None]) -> int | None:
    known = [*counts]
    return None if None in known else sum(count for count in known if count is not None)


def _strangers(directory: SweepDirectory) -> Iterator[Problem]:
    """Finds directories beside the shards that are not shards of this sweep."""
    for part in directory.parts:
        wrong = [name for name in _ALIKE if getattr(part, name) != getattr(directory, name)]
        if part.shard is None or part.shard.count != directory.shards or part.place.full_name != _home(directory, part):
            wrong.append("shard")
        if wrong:
            yield Problem(
                f"{part.place}: another {', '.join(wrong)} than {directory.place}", "move it out, or restore its record"
            )


def _home(directory: SweepDirectory, part: SweepDirectory) -> str:
    return f"{directory.place.full_name}/{part.of_shard.folder}"


def _of_shard(index: int, audit: Audit) -> Check:
    """Summarizes the audit of one shard as one check. Its line has the counts of the shard's first check."""
    first = audit.checks[0].line if audit.checks else "nothing was checked"
    problems = tuple(Problem(f"shard {index}: {problem.what}", problem.fix) for problem in audit.problems)
    return Check(f"shard {index}: {first}, in {len(audit.checks)} checks", problems)
