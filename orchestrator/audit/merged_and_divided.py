"""Audits a sweep whose trials are divided among several processes."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from attnsweep.orchestrator.analysis.machines import are_several, environments_in, types_in_words
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.audit.problems import Audit, Check, Problem
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory
from attnsweep.workloads.errors import UserError

_ALIKE = ("sweep", "spec_sha256", "code", "files", "defaults", "engine")
"""Fields in which the records of all shards (shares of the trials) must equal the sweep's record."""


def audit_shards(directory: SweepDirectory, audit: Callable[[Place], Audit]) -> Audit:
    """Audits a sweep whose trials are divided into shards, each run by a process of its own. Checks each shard alone,
    and whether all of them are shards of this sweep. A shard that has not begun or has not ended is no problem, but the
    sweep then counts as unfinished.

    Args:
        directory: The sweep.
        audit: Audits one shard.
    """
    audits = {part.of_shard.index: audit(part.place) for part in directory.parts}
    finished = all(part.finished for part in audits.values()) and len(audits) == directory.shards
    unknown = any(part.finished is None for part in audits.values())
    stages = dict.fromkeys(stage for part in audits.values() for stage in part.counts)
    shortfall = f": {directory.shortfall}" if not unknown and directory.shortfall else ""
    try:
        with SweepData.open(directory.place).reading() as connection:
            machines = check_machines(environments_in(connection), directory)
    except UserError:
        # A shard (one part of a divided sweep) that cannot be read is skipped here, because the audit of this shard has
        # already reported the error.
        machines = []
    return Audit(
        directory=str(directory.place),
        sweep=directory.sweep,
        finished=None if unknown else finished,
        counts={stage: _total(part.counts.get(stage) for part in audits.values()) for stage in stages},
        checks=(
            Check(
                f"{len(directory.parts)} of {directory.shards} shards have begun{shortfall}",
                tuple(_strangers(directory)),
            ),
            Check(f"{SWEEP_FILE}: the spec as it was written, sha256 {directory.spec_sha256[:12]}"),
            *(_of_shard(index, part) for index, part in audits.items()),
            *machines,
        ),
    )


def _total(counts: Iterable[int | None]) -> int | None:
    known = [*counts]
    return None if None in known else sum(count for count in known if count is not None)


def _strangers(directory: SweepDirectory) -> Iterator[Problem]:
    """Finds directories that lie beside the shards (shares of the trials) but are not shards of this sweep."""
    for part in directory.parts:
        wrong = [name for name in _ALIKE if getattr(part, name) != getattr(directory, name)]
        home = f"{directory.place.full_name}/{part.of_shard.folder}"
        if part.shard is None or part.shard.count != directory.shards or part.place.full_name != home:
            wrong.append("shard")
        if wrong:
            yield Problem(
                f"{part.place}: another {', '.join(wrong)} than {directory.place}", "move it out, or restore its record"
            )


def _of_shard(index: int, audit: Audit) -> Check:
    """Summarizes the audit of one shard (a share of the trials) as a single check, with its problems."""
    first = audit.checks[0].line if audit.checks else "nothing was checked"
    problems = tuple(Problem(f"shard {index}: {problem.what}", problem.fix) for problem in audit.problems)
    return Check(f"shard {index}: {first}, in {len(audit.checks)} checks", problems)


def check_machines(trainings: Mapping[str | None, int], directory: SweepDirectory) -> list[Check]:
    """Reports trainings whose machine `sweep.json` does not name. If there are none, reports whether the machines are
    of several types. Returns no check if they are all of one type.

    Args:
        trainings: Number of trainings by the id of their environment; `None` if it was not recorded.
        directory: The sweep.
    """
    unknown = sorted(name for name in trainings if name is not None and name not in directory.environments)
    if unknown and directory.environments:
        n = sum(trainings[name] for name in unknown)
        what = f"{n:,} trainings of environments that {SWEEP_FILE} does not name: {', '.join(unknown)}"
        problem = Problem(what, f"restore {SWEEP_FILE} from a copy of the directory")
        return [Check("environments of the trainings", (problem,))]
    if not are_several(trainings, [directory]):
        return []
    words = types_in_words(trainings, [directory])
    return [Check(f"trained on machines of several types, between which last bits may differ: {words}")]
