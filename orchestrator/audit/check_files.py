"""Checks each file of a sweep by itself: the ledger's tables, the study's journal, and what is stored beside them."""

from collections.abc import Iterator

import duckdb

from attnsweep.orchestrator.audit.check_trials import COPIED, RESTORE, RESUME
from attnsweep.orchestrator.audit.problems import Check, Problem, first_few, grouped
from attnsweep.orchestrator.inspection.kept_weights import FOLDER as WEIGHTS
from attnsweep.orchestrator.ledger.fragments import TABLES
from attnsweep.orchestrator.ledger.snapshot import examine
from attnsweep.orchestrator.running.journal import Seals, is_note, read_seals
from attnsweep.orchestrator.running.study_storage import orphans, read_pieces
from attnsweep.orchestrator.running.warm_start import told_trials
from attnsweep.orchestrator.storage.local import LocalFolder, regular_file
from attnsweep.orchestrator.storage.place import CHECKPOINTS, Place, digest
from attnsweep.orchestrator.storage.record import DamagedRecordError
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import COURSE, STUDY_FILE, SweepDirectory
from attnsweep.workloads.errors import UserError

_MISFITS = """
with seen as (select distinct training_id, trial, replicate from {table})
select coalesce(trainings.trial, seen.trial), coalesce(trainings.replicate, seen.replicate), seen.trial is null
from trainings full join seen using (training_id, trial, replicate)
where trainings.trial is null or seen.trial is null and trainings.outcome <> 'failed'
order by all
"""
_BARE = Problem("trainings that did not fail and have no curves", RESTORE)

_COMPACT = "remove it with: attnsweep compact DIR"
_RESTORE = "restore it from a copy"
_DISK = "check its disk, and your access to it"
_NAMED_BY_DIGEST = {
    CHECKPOINTS: "continue with: attnsweep resume DIR, which begins its pack again",
    WEIGHTS: "remove the file: the weights are then trained again",
}
"""For each folder whose Parquet files have names that end with their digests: what to do about a damaged file."""


def check_links(connection: duckdb.DuckDBPyConnection) -> tuple[Problem, ...]:
    """Rows of `curves` and `heads` that belong to no training, and trainings without curves."""
    faults = []
    for table in ("curves", "heads"):
        orphans = Problem(f"trainings with rows in {table} only", COPIED)
        for trial, replicate, is_bare in connection.execute(_MISFITS.format(table=table)).fetchall():
            # A training without rows in the table `heads` is no problem, because some variants of a workload have no
            # attention heads.
            if not is_bare or table == "curves":
                faults.append((_BARE if is_bare else orphans, f"{trial}/{replicate}"))
    return grouped(faults)


def count_files(place: Place) -> int:
    """Of all tables together."""
    return sum(len(place.names(table)) for table in TABLES)


def check_files(place: Place, spec_sha256: str, *, finished: bool) -> tuple[Problem, ...]:
    """Damaged files, files of other sweeps, and left-over files."""
    found = examine(place)
    problems = [Problem(f"{fault.subject}: {fault.given}", RESUME) for fault in found.damaged.values()]
    for table, file in found.sound.not_counting() if finished else ():
        if file.removesuffix(".parquet") not in found.damaged:
            problems.append(
                Problem(f"{place}/{table}/{file}: left over by a commit or a merge that was cut short", _COMPACT)
            )
    for table, files in found.sound.files.items():
        for name, opened in files.items():
            if (spec := opened.stamp.spec_sha256) != spec_sha256:
                what = f"{place.file_name(table, name)}: rows of another sweep, of the spec {spec[:12]}"
                problems.append(Problem(what, COPIED))
    return tuple(problems)


def check_course(directory: SweepDirectory, fix: str | None = None) -> tuple[bool | None, list[Check]]:
    """`fix` is for a damaged file, if it is not the fix that the error names."""
    try:
        return directory.finished, []
    except DamagedRecordError as damage:
        return None, [Check(f"{COURSE.name} cannot be read", (Problem.of(damage, fix),))]


def check_journal(directory: SweepDirectory, *, finished: bool) -> list[Check]:
    place = directory.place
    if directory.spec.storage:
        return []
    try:
        if isinstance(place, ObjectPrefix):
            return [_journal_in_pieces(place)]
        assert isinstance(place, LocalFolder)
        return [_journal_in_file(place, finished=finished)]
    except FileNotFoundError:
        return []
    except UserError as damage:
        problem = Problem.of(damage)
    except OSError as error:
        problem = Problem(f"{place}/{STUDY_FILE}: {error.strerror}", _DISK)
    return [Check(f"{STUDY_FILE} cannot be read", (problem,))]


def _journal_in_file(folder: LocalFolder, *, finished: bool) -> Check:
    *lines, torn = regular_file(folder.path / STUDY_FILE).read_bytes().split(b"\n")
    seals = read_seals(lines)
    strange = [str(number) for number in seals.foreign if not is_note(lines[number - 1])]
    problems = []
    if seals.broken:
        broken = first_few([str(number) for number in seals.broken])
        problems.append(Problem(f"{STUDY_FILE}: lines changed since they were written: {broken}", _RESTORE))
    if strange:
        what = f"{STUDY_FILE}: lines of another program that are no notes: {first_few(strange)}"
        problems.append(Problem(what, _RESTORE))
    if torn and finished:
        problems.append(Problem(f"{STUDY_FILE}: its last line has no end", _RESTORE))
    return Check(_count_lines(seals), tuple(problems))


def _journal_in_pieces(prefix: ObjectPrefix) -> Check:
    journal = read_pieces(prefix, STUDY_FILE)
    lost = orphans(prefix, STUDY_FILE, journal)
    problem = Problem(
        f"{len(lost)} pieces of the journal by a process that had lost the sweep: {first_few(lost)}",
        f"nothing reads them: remove them from {prefix}/{STUDY_FILE}",
    )
    return Check(_count_lines(journal.seals), (problem,) if lost else ())


def _count_lines(seals: Seals) -> str:
    words = f"{STUDY_FILE}: {seals.n_sealed:,} lines with digests"
    if seals.foreign:
        words += f", {len(seals.foreign):,} notes of another program"
    if seals.n_open:
        words += f", the last {seals.n_open:,} of them not covered by a digest yet"
    return words


def check_stored(directory: SweepDirectory) -> tuple[Problem, ...]:
    """Checkpoints, weights and warm starts that have changed since they were written."""
    return tuple(_stored(directory))


def _stored(directory: SweepDirectory) -> Iterator[Problem]:
    for folder in _NAMED_BY_DIGEST:
        yield from _named_by_digest(directory.place, folder)
    try:
        told_trials(directory)
    except UserError as damage:
        yield Problem.of(damage)


def _named_by_digest(place: Place, folder: str) -> Iterator[Problem]:
    for name in place.names(folder):
        path = place.file_name(folder, name)
        try:
            with place.answering(), place.open_file(folder, name) as file:
                is_as_written = digest(file) == name.rpartition("-")[2]
        except FileNotFoundError:
            # While a sweep runs, it removes the checkpoints of trainings that have ended, so a file that was listed
            # before may be missing now.
            continue
        except UserError as refusal:
            yield Problem.of(refusal)
        except OSError as error:
            yield Problem(f"{path}: {error.strerror}", _DISK)
        else:
            if not is_as_written:
                yield Problem(f"{path}: a file that does not match its checksum", _NAMED_BY_DIGEST[folder])
