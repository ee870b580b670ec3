"""The journal of a sweep's Optuna study: its entries, its file, and the chained digests ("seals") of its lines."""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import TrialState

from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder, naming, refuse_link, regular_file, sync
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.workloads.errors import UserError


class Operation(IntEnum):
    SET_STUDY_SYSTEM_ATTR = 3
    CREATE_TRIAL = 4
    SET_TRIAL_STATE_VALUES = 6
    SET_TRIAL_USER_ATTR = 8
    SET_TRIAL_SYSTEM_ATTR = 9


_CONTINUES = "continues"
"""Key that marks an entry if the draw of its trial continues in the next entry. Optuna ignores the key."""
_WRITER = "attnsweep"
"""The name of the writer, which Optuna requires in each entry and uses only to report a writer's mistakes."""
_STALE_SECONDS = 3.0
"""A lock that is held for longer belonged to a killed process and is taken over. Appends take less time."""
_LOOK_SECONDS = 0.01
_SEAL = re.compile(rb',"chain":"([0-9a-f]{16})"\}$')
_N_SEAL_DIGITS = 16
_NOTE_KEYS = {"op_code", "worker_id", "study_id", "trial_id", "user_attr", "system_attr"}


class Chain:
    """Seals a journal's lines: each line of the sweep ends with a digest of the last seal and all bytes since.

    The seal is the line's last key, `chain`, which Optuna ignores. If a line is changed or removed, or another writer
    replaces it, the next seal is wrong. Lines of other programs have no seal; the next line of the sweep covers them.
    The methods take lines without line ends.
    """

    def __init__(self) -> None:
        self._since = sha256()

    def seal(self, line: str) -> str:
        body = line.removesuffix("}")
        self._since.update(body.encode())
        seal = self._close()
        return f'{body},"chain":"{seal}"}}'

    def follow(self, line: bytes) -> bool | None:
        """Takes a line read from the journal. Returns whether its seal is right; `None` if it has none."""
        match = _SEAL.search(line)
        if match is None:
            self._since.update(line + b"\n")
            return None
        self._since.update(line[: match.start()])
        fits = self._close() == match[1].decode()
        # The seal of a line is a digest that also depends on all lines before it. Here the digest goes on from the seal
        # that was read, even if this seal is wrong. Otherwise one damaged line would make the seals of all later lines
        # wrong.
        self._since = sha256(match[1])
        return fits

    def _close(self) -> str:
        seal = self._since.hexdigest()[:_N_SEAL_DIGITS]
        self._since = sha256(seal.encode())
        return seal


@dataclass(frozen=True, slots=True)
class Seals:
    """The seals of a journal.

    Attributes:
        chain: The digest after the last line.
        broken: The numbers of the lines whose seal is wrong.
        foreign: The numbers of the lines that have no seal.
        n_open: Number of lines without a seal at the end, which no later seal covers yet.
    """

    chain: Chain
    n_sealed: int
    broken: tuple[int, ...]
    foreign: tuple[int, ...]
    n_open: int


def read_seals(lines: Iterable[bytes]) -> Seals:
    chain = Chain()
    fits = [chain.follow(line) for line in lines]
    sealed = [number for number, each in enumerate(fits, start=1) if each is not None]
    broken = tuple(number for number in sealed if not fits[number - 1])
    foreign = tuple(number for number, each in enumerate(fits, start=1) if each is None)
    return Seals(chain, len(sealed), broken, foreign, len(fits) - max(sealed, default=0))


def is_note(line: bytes) -> bool:
    """Whether a line only sets attributes, such as a user's note, and so does not change the numbers of trials."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and entry.keys() <= _NOTE_KEYS and ("user_attr" in entry or "system_attr" in entry)


class StudyLog(BaseJournalBackend):
    """The journal of a sweep's Optuna study. Optuna appends entries in memory; `save` makes all new entries durable in
    one write.

    A killed process loses the entries since the last `save`. The driver saves before each checkpoint and each commit to
    the ledger, so neither ever names a trial that was lost.

    Drawing a trial makes several entries. They are saved together (`asking`), and each but the last is marked as
    continued. If only some of them reached the disk, the mark shows it, and all of them are dropped.

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
        # Unsaved entries are stored as strings and not as dictionaries, because the garbage collector scans
        # dictionaries but no strings.
        self._unsaved: list[str] = []
        self._has_failed = False

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Returns the entries from this number on, and drops the earlier ones, which Optuna never asks for again."""
        del self._unread[: log_number_from - self._n_read]
        self._n_read = log_number_from
        return list(self._unread)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds entries in the form in which JSON stores them: tuples become lists, keys strings."""
        entries = [json.loads(json.dumps(log)) for log in logs]
        self._unread += entries
        if self._asked is None:
            self._unsaved += map(_line, entries)
        else:
            self._asked += entries

    def add(self, entry: dict[str, Any]) -> None:
        """Adds an entry, which the next `save` writes. The study in memory stays as it is."""
        assert self._asked is None
        self._unsaved.append(_line(entry))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """In this context Optuna draws one trial: its entries are saved together, or not at all after an exception."""
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

        After a save that failed or was interrupted it does nothing, because it is not known how much that save wrote.
        """
        if not self._unsaved or self._has_failed or self._append is None:
            return
        self._has_failed = True
        self._append(self._unsaved)
        self._unsaved = []
        self._has_failed = False


class TrialEntries:
    """Writes trials directly to the journal, not through Optuna's storage.

    It serves samplers that do not learn from results: no trial stays in memory, and an entry costs a tenth of Optuna's
    time. The lines are those that Optuna would have written. The journal has one study, whose id is 0, and a trial's
    id is its number. Methods that Optuna's storage has too have the names that Optuna uses.
    """

    def __init__(self, log: StudyLog) -> None:
        self._log = log
        self._texts: dict[BaseDistribution, str] = {}

    def create(self, drawn: Mapping[str, Scalar], distributions: Mapping[str, BaseDistribution]) -> None:
        self._add(
            Operation.CREATE_TRIAL,
            study_id=0,
            datetime_start=_now(),
            state=TrialState.RUNNING,
            distributions={name: self._text(distribution) for name, distribution in distributions.items()},
            params={name: distribution.to_internal_repr(drawn[name]) for name, distribution in distributions.items()},
        )

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None) -> None:
        self._add(
            Operation.SET_TRIAL_STATE_VALUES,
            trial_id=trial_id,
            state=state,
            values=values,
            datetime_complete=_now(),
        )

    def set_trial_user_attr(self, trial_id: int, key: str, value: object) -> None:
        self._add(Operation.SET_TRIAL_USER_ATTR, trial_id=trial_id, user_attr={key: value})

    def set_trial_system_attr(self, trial_id: int, key: str, value: object) -> None:
        self._add(Operation.SET_TRIAL_SYSTEM_ATTR, trial_id=trial_id, system_attr={key: value})

    def _add(self, operation: Operation, **fields: Any) -> None:
        self._log.add({"op_code": operation, "worker_id": _WRITER, **fields})

    def _text(self, distribution: BaseDistribution) -> str:
        text = self._texts.get(distribution)
        if text is None:
            text = self._texts[distribution] = distribution_to_json(distribution)
        return text


class JournalFile:
    """The journal as a file, which Optuna's `JournalFileBackend` can read even while a sweep writes it.

    A kill or a full disk can leave a part of a line, or only some entries of a trial, at the end. `load` cuts this part
    off; nothing that depends on it has been written. `optuna-dashboard` may add entries too: a file lock keeps its
    writes and the sweep's apart, and the seal (digest) of the sweep's next line covers them.
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
            seals = read_seals(lines)
            if seals.broken:
                given = f"a journal whose line {seals.broken[0]} has changed since it was written"
                expected = "the study's journal as attnsweep wrote it"
                fix = "restore the journal from a copy; to see what is wrong: attnsweep audit DIR"
                raise UserError(str(self._path), given=given, expected=expected, fix=fix)
            self._chain = seals.chain
            self._n_bytes = sum(len(line) + 1 for line in lines)
            file.truncate(self._n_bytes)
        return [line.decode() for line in lines]

    def append(self, lines: list[str]) -> None:
        # The file is opened without a buffer. If a write failed, a buffer would repeat it when the file is closed,
        # although a part of the text may already be on the disk.
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
        is_cut = file.seek(0, os.SEEK_END) < self._n_bytes
        file.seek(self._n_bytes)
        added = file.read()
        notes = added.removesuffix(b"\n").split(b"\n") if added else []
        if is_cut or not all(map(is_note, notes)):
            expected = "a journal that only this sweep writes while it runs"
            fix = "stop that program, undo its change, and continue with: attnsweep resume DIR"
            raise StoreError(str(self._path), given="a change by another program", expected=expected, fix=fix)
        self._n_bytes += len(added)
        for note in notes:
            self._chain.follow(note)

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
    """Holds the lock that `optuna-dashboard` takes too: a symbolic link named `study.journal.lock`.

    Optuna's own class takes the lock's age from the file that the link names, and waits forever if there is none. A
    killed process leaves such a link if it named the file relative to another folder, or had not made it yet.
    """
    link = journal.with_name(f"{journal.name}.lock")
    last_seen, since = None, time.monotonic()
    while True:
        with suppress(FileExistsError):
            link.symlink_to(journal.absolute())
            break
        with suppress(FileNotFoundError):
            status = link.lstat()
            if (status.st_ino, status.st_mtime_ns) != last_seen:
                last_seen, since = (status.st_ino, status.st_mtime_ns), time.monotonic()
            elif time.monotonic() - since > _STALE_SECONDS:
                link.unlink()
        time.sleep(_LOOK_SECONDS)
    try:
        yield
    finally:
        link.unlink()
