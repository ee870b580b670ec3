"""Checks the study's journal alone: each line has the digest of all bytes before it."""

from collections.abc import Sequence

from attnsweep.orchestrator.audit.problems import Check, Problem
from attnsweep.orchestrator.running.journal import Seals, is_note, read_seals
from attnsweep.orchestrator.running.study_storage import orphans, read_pieces
from attnsweep.orchestrator.storage.local import LocalFolder, regular_file
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.workloads.errors import UserError

_RESTORE = "restore it from a copy"
_SHOWN = 3


def check_journal(directory: SweepDirectory, *, finished: bool) -> list[Check]:
    """Checks the bytes of the study's journal. Returns nothing if there is no journal, which another check reports."""
    place = directory.place
    if directory.spec.storage:
        return []
    try:
        if isinstance(place, ObjectPrefix):
            return [_in_pieces(place)]
        assert isinstance(place, LocalFolder)
        return [_in_file(place, finished=finished)]
    except FileNotFoundError:
        return []
    except UserError as damage:
        problem = Problem(f"{damage.subject}: {damage.given}", damage.fix)
    except OSError as error:
        problem = Problem(f"{place}/{STUDY_FILE}: {error.strerror}", "check its disk, and your access to it")
    return [Check(f"{STUDY_FILE} cannot be read", (problem,))]


def _in_file(folder: LocalFolder, *, finished: bool) -> Check:
    *lines, torn = regular_file(folder.path / STUDY_FILE).read_bytes().split(b"\n")
    seals = read_seals(lines)
    problems = _problems(seals, lines)
    if torn and finished:
        problems.append(Problem(f"{STUDY_FILE}: its last line has no end", _RESTORE))
    return Check(_line(seals), tuple(problems))


def _in_pieces(prefix: ObjectPrefix) -> Check:
    journal = read_pieces(prefix, STUDY_FILE)
    lost = orphans(prefix, STUDY_FILE, journal)
    problem = Problem(
        f"{len(lost)} pieces of the journal by a process that had lost the sweep: {_some(lost)}",
        f"nothing reads them: remove them from {prefix}/{STUDY_FILE}",
    )
    return Check(_line(journal.seals), (problem,) if lost else ())


def _problems(seals: Seals, lines: Sequence[bytes]) -> list[Problem]:
    strange = [str(number) for number in seals.foreign if not is_note(lines[number - 1])]
    problems = []
    if seals.broken:
        numbers = _some([str(number) for number in seals.broken])
        problems.append(Problem(f"{STUDY_FILE}: lines changed since they were written: {numbers}", _RESTORE))
    if strange:
        problems.append(
            Problem(f"{STUDY_FILE}: lines of another program that are no notes: {_some(strange)}", _RESTORE)
        )
    return problems


def _line(seals: Seals) -> str:
    if not seals.n_sealed:
        return f"{STUDY_FILE}: {seals.n_lines:,} lines by an earlier attnsweep, without digests: not checked"
    words = f"{STUDY_FILE}: {seals.n_sealed:,} lines with digests"
    if seals.foreign:
        words += f", {len(seals.foreign):,} notes of another program"
    if seals.n_open:
        words += f", the last {seals.n_open:,} of them not covered by a digest yet"
    return words


def _some(cases: list[str]) -> str:
    more = len(cases) - _SHOWN
    return ", ".join(cases[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
