"""Optuna's journal: buffered in memory, then made durable in a file, or in several objects of an object store."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import TrialState

from attnsweep.orchestrator.running.journal_chain import Chain, is_note, read_seals
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder, naming, refuse_link, regular_file, sync
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.optuna_internals import constraint_attribute
from attnsweep.workloads.errors import UserError


class Operation(IntEnum):
    """The codes of journal entries, as Optuna defines them."""

    SET_STUDY_SYSTEM_ATTR = 3
    CREATE_TRIAL = 4
    SET_TRIAL_STATE_VALUES = 6
    SET_TRIAL_USER_ATTR = 8
    SET_TRIAL_SYSTEM_ATTR = 9


_CONTINUES = "continues"
"""Key that marks a journal entry whose ask continues in the next entry. Optuna ignores it."""
_WRITER = "attnsweep"
"""The name of the writer, which Optuna requires in each entry and uses only to report a writer's mistakes."""
_STALE_SECONDS = 3.0
"""A lock that is held for longer than this belonged to a killed process and is taken over. Appends take less time."""
_LOOK_SECONDS = 0.01


class StudyLog(BaseJournalBackend):
    """The journal of Optuna's study: Optuna appends entries in memory, and `save` makes all new ones durable in one
    write.

    A killed process loses the entries since the last `save`. The driver saves before each checkpoint and each commit,
    so no checkpoint and no commit names a trial that was lost.

    One ask makes several entries. They are saved together (`asking`), and all but the last are marked as continued. An
    ask that reached the disk only in part is recognized by the mark and dropped as a whole.

    Args:
        lines: The lines of the journal so far.
        append: Adds lines to the journal, which are durable once this returns. After a StoreError a part of them, up to
            any byte, may have been written. `None` for a journal that is only read.
    """

    def __init__(self, lines: Iterable[str], append: Callable[[list[str]], None] | None = None) -> None:
        self._append = append
        self._unread: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self._n_read = 0
        self._asked: list[dict[str, Any]] | None = None
        # Entries are stored as strings, because the garbage collector does not traverse strings.
        self._unsaved: list[str] = []
        self._has_failed = False

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Returns the entries from number `log_number_from` on. Earlier entries are dropped, because Optuna reads each
        entry once."""
        del self._unread[: log_number_from - self._n_read]
        self._n_read = log_number_from
        return list(self._unread)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds entries to the journal in memory, in the form that reading them from a file gives: tuples as lists,
        keys as strings."""
        entries = [json.loads(json.dumps(log)) for log in logs]
        self._unread += entries
        if self._asked is None:
            self._unsaved += map(_line, entries)
        else:
            self._asked += entries

    def add(self, entry: dict[str, Any]) -> None:
        """Adds an entry to the saved journal alone; Optuna's study in memory does not get it."""
        assert self._asked is None
        self._unsaved.append(_line(entry))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A context for drawing one trial. Its entries are saved together, or not at all if an exception leaves the
        context."""
        asked: list[dict[str, Any]] = []
        self._asked = asked
        try:
            yield
        finally:
            self._asked = None
        for entry in asked[:-1]:
            entry[_CONTINUES] = True
        self._unsaved += map(_line, asked)

    def save(self) -> None:
        """Makes all entries so far durable, in one write. Idempotent.

        Does nothing after a save that failed or was interrupted, because it is not known how much that save wrote.
        """
        if not self._unsaved or self._has_failed or self._append is None:
            return
        self._has_failed = True
        self._append(self._unsaved)
        self._unsaved = []
        self._has_failed = False


class TrialEntries:
    """Writes trials, their values and their ends to a sweep's journal directly, without Optuna's study.

    For samplers that do not learn: no trial stays in memory, and an entry costs a tenth of Optuna's time. The journal
    is the one that Optuna would have written, and can be opened with it. It has one study, whose id is 0, and a trial's
    id is its number.

    Args:
        log: The journal.
    """

    def __init__(self, log: StudyLog) -> None:
        self._log = log
        self._texts: dict[BaseDistribution, str] = {}

    def create(self, drawn: Mapping[str, Scalar], distributions: Mapping[str, BaseDistribution]) -> None:
        """Adds a running trial with its drawn values to the journal. The trial gets the next number."""
        self._add(
            Operation.CREATE_TRIAL,
            study_id=0,
            datetime_start=_now(),
            state=TrialState.RUNNING,
            distributions={name: self._text(distribution) for name, distribution in distributions.items()},
            params={name: distribution.to_internal_repr(drawn[name]) for name, distribution in distributions.items()},
        )

    def end(self, trial: int, state: TrialState, values: Sequence[float] | None) -> None:
        """Records a trial's final state and values in the journal."""
        self._add(
            Operation.SET_TRIAL_STATE_VALUES,
            trial_id=trial,
            state=state,
            values=values,
            datetime_complete=_now(),
        )

    def note(self, trial: int, name: str, value: object) -> None:
        """Sets a user attribute of a trial."""
        self._add(Operation.SET_TRIAL_USER_ATTR, trial_id=trial, user_attr={name: value})

    def constrain(self, trial: int, name: str, excess: float) -> None:
        """Records how far a trial violates a constraint."""
        self._add(Operation.SET_TRIAL_SYSTEM_ATTR, trial_id=trial, system_attr={constraint_attribute(name): excess})

    def _add(self, operation: Operation, **fields: Any) -> None:
        self._log.add({"op_code": operation, "worker_id": _WRITER, **fields})

    def _text(self, distribution: BaseDistribution) -> str:
        text = self._texts.get(distribution)
        if text is None:
            text = self._texts[distribution] = distribution_to_json(distribution)
        return text


class JournalFile:
    """The study's journal as a file, which Optuna's `JournalFileBackend` can read even while it is being written.

    A kill or a full disk can leave an incomplete line or ask at the end. `load` cuts it off: nothing that depends on it
    has been written. `optuna-dashboard` may add entries too: the file lock separates them from ours, and the seal of
    our next line covers them.

    Args:
        folder: The sweep directory.
        name: The file's name.
    """

    def __init__(self, folder: LocalFolder, name: str) -> None:
        self._folder = folder
        self._path = folder.path / name
        self._n_bytes = 0
        self._chain = Chain()

    def load(self) -> list[str]:
        with self._writing():
            if not refuse_link(self._path).exists():
                return []
        with self._writing(), regular_file(self._path).open("r+b") as file:
            *lines, _torn = file.read().split(b"\n")
            while lines and json.loads(lines[-1]).get(_CONTINUES):
                lines.pop()
            self._chain = self._unbroken(lines)
            self._n_bytes = sum(len(line) + 1 for line in lines)
            file.truncate(self._n_bytes)
        return [line.decode() for line in lines]

    def append(self, lines: list[str]) -> None:
        # The file is unbuffered. A buffer would repeat a failed write when the file is closed, although the disk may
        # already have stored a part of it.
        with self._writing(), locked(self._path), refuse_link(self._path).open("ab+", buffering=0) as file:
            self._pass_notes(file)
            content = "".join(f"{self._chain.seal(line)}\n" for line in lines).encode()
            unwritten = content
            while unwritten:
                unwritten = unwritten[file.write(unwritten) :]
            os.fsync(file.fileno())
            if self._n_bytes == 0:
                sync(self._path.parent)
            self._n_bytes += len(content)

    def _pass_notes(self, file: BinaryIO) -> None:
        """Moves to the end of the file, past notes that a user has added with `optuna-dashboard`; raises an error for
        any other change."""
        is_cut = file.seek(0, os.SEEK_END) < self._n_bytes
        file.seek(self._n_bytes)
        added = file.read()
        notes = added.removesuffix(b"\n").split(b"\n") if added else []
        if is_cut or not all(map(is_note, notes)):
            raise StoreError(
                str(self._path),
                given="a change by another program",
                expected="a journal that only this sweep writes while it runs",
                fix="stop that program, undo its change, and continue with: attnsweep resume DIR",
            )
        self._n_bytes += len(added)
        for note in notes:
            self._chain.follow(note)

    def _unbroken(self, lines: list[bytes]) -> Chain:
        seals = read_seals(lines)
        if seals.broken:
            raise UserError(
                str(self._path),
                given=f"a journal whose line {seals.broken[0]} has changed since it was written",
                expected="the study's journal as attnsweep wrote it",
                fix="restore the journal from a copy; to see what is wrong: attnsweep audit DIR",
            )
        return seals.chain

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._folder.writing(), naming(self._path):
            yield


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, separators=(",", ":"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


@contextmanager
def locked(journal: Path) -> Iterator[None]:
    """A context that holds the lock of a journal's file: a link named `study.journal.lock`, which `optuna-dashboard`
    uses too.

    Optuna's own class is not used, because it takes the lock's age from the file behind the link. So it waits forever
    for a link that leads nowhere: the link of a killed process that named the file relative to another folder, or had
    not made it yet.

    Raises:
        OSError: If the link cannot be made.
    """
    link = journal.with_name(f"{journal.name}.lock")
    _take(link, journal.absolute())
    try:
        yield
    finally:
        link.unlink()


def _take(link: Path, journal: Path) -> None:
    last_seen, since = None, time.monotonic()
    while True:
        with suppress(FileExistsError):
            link.symlink_to(journal)
            return
        with suppress(FileNotFoundError):
            status = link.lstat()
            if (status.st_ino, status.st_mtime_ns) != last_seen:
                last_seen, since = (status.st_ino, status.st_mtime_ns), time.monotonic()
            elif time.monotonic() - since > _STALE_SECONDS:
                link.unlink()
        time.sleep(_LOOK_SECONDS)
