"""Optuna's journal: a file; in an object store, where nothing can be appended to, a folder of pieces."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend, JournalFileBackend, JournalFileSymlinkLock

from orchestrator.places.local_folder import LocalFolder, regular_file
from orchestrator.places.object_prefix import ObjectPrefix

_MOST_PIECES = 100
"""That stand side by side; then they are joined into one."""


_LOCK_SECONDS = 3
"""After which Optuna takes the lock of an appending that was killed; ours are over in less."""


class JournalFile(JournalFileBackend):
    """The journal in a directory. The sweep's driver, who holds its lock, is the only writer.

    A last line that is not whole, as a full disk or a kill leaves it, is cut off: Optuna would append to it, and could
    read neither from then on. What it was to say has not been acted upon.

    Raises:
        StoreError: If it cannot be written; so does every appending.
    """

    def __init__(self, folder: LocalFolder, name: str) -> None:
        self._folder = folder
        path = folder.path / name
        with folder.writing():
            _cut_off_torn_line(path)
            super().__init__(str(path), JournalFileSymlinkLock(str(path), grace_period=_LOCK_SECONDS))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds entries, there to stay."""
        with self._folder.writing():
            super().append_logs(logs)


def _cut_off_torn_line(path: Path) -> None:
    if path.exists():
        with regular_file(path).open("r+b") as file:
            whole = file.read().rpartition(b"\n")
            file.truncate(len(whole[0] + whole[1]))


class StudyLog(BaseJournalBackend):
    """The journal in an object store. What was added since `save` is lost with the process.

    A piece is written once, and named by the number of its first line; together, in order, they are the file that
    Optuna's `JournalFileBackend` would have written. The sweep's driver, who holds its lock, is the only writer.

    Args:
        prefix: The sweep.
        folder: Where the pieces are.
    """

    def __init__(self, prefix: ObjectPrefix, folder: str) -> None:
        self._prefix = prefix
        self._folder = folder
        self._unsaved: list[str] = []
        lines, self._names = self._load()
        self._n_saved = len(lines)
        self._kept: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self._first_kept = 0

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """The entries from this number on. Optuna replays each once, so those before it are let go."""
        del self._kept[: log_number_from - self._first_kept]
        self._first_kept = log_number_from
        return list(self._kept)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds entries, in memory."""
        lines = [json.dumps(log, separators=(",", ":")) for log in logs]
        self._unsaved += lines
        self._kept += [json.loads(line) for line in lines]

    def save(self) -> None:
        """Writes what was added since the last time as one piece."""
        if not self._unsaved:
            return
        if len(self._names) > _MOST_PIECES:
            lines, names = self._load()
            self._put(0, lines)
            self._prefix.remove(self._folder, names[1:])
            self._names = names[:1]
        self._names.append(self._put(self._n_saved, self._unsaved))
        self._n_saved += len(self._unsaved)
        self._unsaved = []

    def _load(self) -> tuple[list[str], list[str]]:
        names = sorted(self._prefix.texts(self._folder))
        with ThreadPoolExecutor(self._prefix.n_at_once) as threads:
            texts = list(threads.map(lambda name: self._prefix.read_text(f"{self._folder}/{name}"), names))
        lines: list[str] = []
        for name, text in zip(names, texts, strict=True):
            # One that begins before the end of those read so far was joined to them, and not yet removed.
            if int(name.partition(".")[0]) == len(lines):
                lines += text.splitlines()
        return lines, names

    def _put(self, number: int, lines: list[str]) -> str:
        name = f"{number:012d}.jsonl"
        self._prefix.put_text(f"{self._folder}/{name}", "".join(f"{line}\n" for line in lines))
        return name
