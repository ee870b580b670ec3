"""Optuna's journal: buffered in memory, then durable in a file or, in an object store, in several objects."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol

from optuna.storages.journal import BaseJournalBackend, JournalFileSymlinkLock

from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder, refuse_link, regular_file, sync
from attnsweep.orchestrator.storage.s3 import ObjectPrefix

_CONTINUES = "continues"
"""The key of a journal entry that says: the next entry belongs to the same ask. Optuna ignores it."""
_MOST_PIECES = 100
"""Pieces side by side in an object store, before they are joined into one."""
_LOCK_SECONDS = 3
"""After this time Optuna takes over the lock of a writer that was killed. Our appends take less."""


class JournalStore(Protocol):
    """A store for the lines of a journal. The sweep's driver, which holds the lock, is the only writer."""

    def load(self) -> list[str]:
        """The lines so far. Called once, before the first `append`."""

    def append(self, lines: list[str]) -> None:
        """Adds lines. They are durable once this returns.

        Raises:
            StoreError: If they cannot be written. A part of them, up to any byte, may have been.
        """


class StudyLog(BaseJournalBackend):
    """A journal that Optuna appends to in memory; `save` makes it durable, in one write.

    A killed process loses the entries since the last `save`. The driver saves before each checkpoint and each commit,
    so no checkpoint and no commit names a trial that was lost.

    An ask is several entries. They are saved together (`asking`), and all but the last are marked as continued. An ask
    that reached the disk only in part is recognized by the mark and dropped as a whole.

    Args:
        store: The journal's store.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._unread: list[dict[str, Any]] = [json.loads(line) for line in store.load()]
        self._n_read = 0
        self._asked: list[dict[str, Any]] | None = None
        # As texts, which cost the garbage collector nothing.
        self._unsaved: list[str] = []
        self._has_failed = False

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """The entries from this number on. Optuna reads each once: those before it are released."""
        del self._unread[: log_number_from - self._n_read]
        self._n_read = log_number_from
        return list(self._unread)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds entries in memory, in the form a file would return: tuples as lists, keys as strings."""
        entries = [json.loads(json.dumps(log)) for log in logs]
        self._unread += entries
        if self._asked is None:
            self._unsaved += map(_line, entries)
        else:
            self._asked += entries

    def add(self, entry: dict[str, Any]) -> None:
        """Adds an entry that Optuna's study in memory is not told of."""
        assert self._asked is None
        self._unsaved.append(_line(entry))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A context for one ask: its entries are saved together, or not at all if it raises."""
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
        """Makes the entries so far durable. Idempotent.

        After a save that failed or was interrupted it does nothing: how much that save wrote is not known.
        """
        if not self._unsaved or self._has_failed:
            return
        self._has_failed = True
        self._store.append(self._unsaved)
        self._unsaved = []
        self._has_failed = False


class JournalFile:
    """The journal as a file that Optuna's `JournalFileBackend` reads, also while it is written.

    A kill or a full disk can leave a torn line or a torn ask at the end. `load` cuts it off: nothing that depends on it
    has been written. Optuna's lock keeps the entries of its dashboard apart from ours.

    Args:
        folder: The sweep directory.
        name: The file's name.
    """

    def __init__(self, folder: LocalFolder, name: str) -> None:
        self._folder = folder
        self._path = folder.path / name
        self._lock = JournalFileSymlinkLock(str(self._path), grace_period=_LOCK_SECONDS)
        self._n_bytes = 0

    def load(self) -> list[str]:
        if not refuse_link(self._path).exists():
            return []
        with self._folder.writing(), regular_file(self._path).open("r+b") as file:
            *lines, _torn = file.read().decode().split("\n")
            while lines and json.loads(lines[-1]).get(_CONTINUES):
                lines.pop()
            self._n_bytes = sum(len(line.encode()) + 1 for line in lines)
            file.truncate(self._n_bytes)
        return lines

    def append(self, lines: list[str]) -> None:
        content = "".join(f"{line}\n" for line in lines).encode()
        with self._folder.writing(), self._locked(), refuse_link(self._path).open("ab+") as file:
            self._pass_notes(file)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if self._n_bytes == 0:
                sync(self._path.parent)
            self._n_bytes += len(content)

    def _pass_notes(self, file: BinaryIO) -> None:
        """Moves to the end of the file, past any notes that a user added with `optuna-dashboard`."""
        is_cut = file.seek(0, os.SEEK_END) < self._n_bytes
        file.seek(self._n_bytes)
        others = file.read()
        if is_cut or not all(map(_is_note, others.splitlines())):
            raise StoreError(
                str(self._path),
                given="a change by another program",
                expected="only this sweep's entries and notes, while it runs",
                fix="stop that program, undo its change, and continue with: attnsweep resume DIR",
            )
        self._n_bytes += len(others)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()


class JournalPieces:
    """The journal in an object store. Objects cannot be appended to, so each `append` makes a new one, a piece.

    A piece is named by the number of its first line. Joined in order, the pieces are the file that Optuna's
    `JournalFileBackend` would have written.

    Args:
        prefix: The sweep.
        folder: The folder of the pieces.
    """

    def __init__(self, prefix: ObjectPrefix, folder: str) -> None:
        self._prefix = prefix
        self._folder = folder
        self._names: list[str] = []
        self._n_lines = 0

    def load(self) -> list[str]:
        lines, self._names = self._load()
        self._n_lines = len(lines)
        return lines

    def append(self, lines: list[str]) -> None:
        if len(self._names) > _MOST_PIECES:
            earlier, names = self._load()
            self._put(0, earlier)
            self._prefix.remove(self._folder, names[1:])
            self._names = names[:1]
        self._names.append(self._put(self._n_lines, lines))
        self._n_lines += len(lines)

    def _load(self) -> tuple[list[str], list[str]]:
        names = sorted(self._prefix.texts(self._folder))
        with ThreadPoolExecutor(self._prefix.n_at_once) as threads:
            texts = list(threads.map(lambda name: self._prefix.read_text(f"{self._folder}/{name}"), names))
        lines: list[str] = []
        for name, text in zip(names, texts, strict=True):
            # A piece that begins earlier has been joined to the first one, and was not yet removed.
            if int(name.partition(".")[0]) == len(lines):
                lines += text.splitlines()
        return lines, names

    def _put(self, number: int, lines: list[str]) -> str:
        name = f"{number:012d}.jsonl"
        self._prefix.put_text(f"{self._folder}/{name}", "".join(f"{line}\n" for line in lines))
        return name


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, separators=(",", ":"))


def _is_note(line: bytes) -> bool:
    """Whether an entry changes nothing but attributes. Optuna numbers trials by the order of the others."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and ("user_attr" in entry or "system_attr" in entry)
