"""Checks the bytes of a sweep: the ledger's files, the study's journal, and what is stored beside them."""

from collections.abc import Iterator

from attnsweep.orchestrator.audit.problems import COPIED, RESUME, Check, Problem, first_few
from attnsweep.orchestrator.inspection.kept_weights import FOLDER as WEIGHTS
from attnsweep.orchestrator.ledger.fragments import TABLES
from attnsweep.orchestrator.ledger.snapshot import examine
from attnsweep.orchestrator.running.journal import Seals, is_note, read_seals
from attnsweep.orchestrator.running.study_storage import orphans, read_pieces
from attnsweep.orchestrator.running.warm_start import told_trials
from attnsweep.orchestrator.storage.errors import store_error
from attnsweep.orchestrator.storage.local import LocalFolder, regular_file
from attnsweep.orchestrator.storage.place import CHECKPOINTS, Place, digest
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.workloads.errors import UserError

_RESTORE = "restore it from a copy"
_NAMED_BY_DIGEST = {
    CHECKPOINTS: "continue with: attnsweep resume DIR, which begins its pack again",
    WEIGHTS: "remove the file: the weights are then trained again",
}
"""For each folder whose Parquet files have names that end with their digests: what to do about a damaged file."""


def check_files(directory: SweepDirectory, *, finished: bool) -> Check:
    place = directory.place
    problems = [*_ledger(directory, finished=finished), *check_stored(directory)]
    n_files = sum(len(place.names(table)) for table in TABLES)
    return Check(f"files {n_files}" + ("" if problems else ", unchanged since they were written"), problems)


def _ledger(directory: SweepDirectory, *, finished: bool) -> Iterator[Problem]:
    """Damaged files, files of other sweeps, and left-over files."""
    place, found = directory.place, examine(directory.place)
    yield from (Problem.of(fault, RESUME) for fault in found.damaged.values())
    for table, file in found.sound.not_counting() if finished else ():
        if file.removesuffix(".parquet") not in found.damaged:
            what = f"{place}/{table}/{file}: left over by a commit or a merge that was cut short"
            yield Problem(what, "remove it with: attnsweep compact DIR")
    for name, opened in found.sound.files["trainings"].items():
        if (spec := opened.stamp.spec_sha256) != directory.spec_sha256:
            what = f"{place.file_name('trainings', name)}: rows of another sweep, of the spec {spec[:12]}"
            yield Problem(what, COPIED)


def check_stored(directory: SweepDirectory) -> list[Problem]:
    """Checkpoints, weights and warm starts that have changed since they were written."""
    problems = [problem for folder in _NAMED_BY_DIGEST for problem in _named_by_digest(directory.place, folder)]
    try:
        told_trials(directory)
    except UserError as damage:
        problems.append(Problem.of(damage))
    return problems


def _named_by_digest(place: Place, folder: str) -> Iterator[Problem]:
    for name in place.names(folder):
        path = place.file_name(folder, name)
        try:
            with place.answering(path), place.open_file(folder, name) as file:
                if digest(file) != name.rpartition("-")[2]:
                    yield Problem(f"{path}: a file that does not match its checksum", _NAMED_BY_DIGEST[folder])
        except FileNotFoundError:
            continue  # a running sweep removes the checkpoints of trainings that have ended
        except UserError as refusal:
            yield Problem.of(refusal)
        except OSError as error:
            yield Problem.of(store_error(path, error))


def check_journal(directory: SweepDirectory, *, finished: bool) -> list[Check]:
    place = directory.place
    if directory.spec.storage:
        return []
    try:
        if isinstance(place, ObjectPrefix):
            journal = read_pieces(place, STUDY_FILE)
            lost = orphans(place, STUDY_FILE, journal)
            what = f"{len(lost)} pieces of the journal by a process that had lost the sweep: {first_few(lost)}"
            fix = f"nothing reads them: remove them from {place}/{STUDY_FILE}"
            return [Check(_count_lines(journal.seals), [Problem(what, fix)] if lost else ())]
        assert isinstance(place, LocalFolder)
        *lines, torn = regular_file(place.path / STUDY_FILE).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except (UserError, OSError) as error:
        refusal = error if isinstance(error, UserError) else store_error(f"{place}/{STUDY_FILE}", error)
        return [Check(f"{STUDY_FILE} cannot be read", [Problem.of(refusal)])]
    seals = read_seals(lines)
    found = {
        "lines changed since they were written": seals.broken,
        "lines of another program that are no notes": [at for at in seals.foreign if not is_note(lines[at - 1])],
        "its last line has no end": [len(lines) + 1] if torn and finished else [],
    }
    problems = [
        Problem(f"{STUDY_FILE}: {what}: {first_few([*map(str, at)])}", _RESTORE) for what, at in found.items() if at
    ]
    return [Check(_count_lines(seals), problems)]


def _count_lines(seals: Seals) -> str:
    words = f"{STUDY_FILE}: {seals.n_sealed:,} lines with digests"
    if seals.foreign:
        words += f", {len(seals.foreign):,} notes of another program"
    if seals.n_open:
        words += f", the last {seals.n_open:,} of them not covered by a digest yet"
    return words
