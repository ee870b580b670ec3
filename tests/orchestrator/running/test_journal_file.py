"""The journal's file, on a disk that refuses a write, and beside processes that held its lock."""

import errno
import io
import os
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import pytest

from attnsweep.orchestrator.running import journal as journal_module
from attnsweep.orchestrator.running.journal import JournalFile, locked
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder

_NAME = "study.journal"


class _Refusing(FileIO):
    """A file on a disk that takes one byte, then writes the rest and says that it has not."""

    n_written = 0

    def write(self, content: object) -> int:
        self.n_written += 1
        if self.n_written == 1:
            return super().write(memoryview(content)[:1])  # type: ignore[arg-type]
        super().write(content)  # type: ignore[arg-type]
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def _open_refusing(path: Path, mode: str, buffering: int = -1) -> io.IOBase:
    raw = _Refusing(path, mode.replace("b", ""))
    return raw if buffering == 0 else io.BufferedRandom(raw)


def test_what_a_disk_refused_after_it_was_written_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JournalFile(LocalFolder(tmp_path), _NAME)
    journal.load()
    journal.append(['{"n":1}'])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", _open_refusing)
        with pytest.raises(StoreError, match="Input/output error"):
            journal.append(['{"n":2}'])
    resumed = JournalFile(LocalFolder(tmp_path), _NAME)
    assert [line[:6] for line in resumed.load()] == ['{"n":1', '{"n":2']
    resumed.append(['{"n":3}'])
    assert len(JournalFile(LocalFolder(tmp_path), _NAME).load()) == 3


@pytest.mark.parametrize("target", [_NAME, f"sweeps/first/{_NAME}", "/gone/study.journal"])
def test_the_lock_of_a_process_that_was_killed_is_taken_over_wherever_it_leads(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_STALE_SECONDS", 0.0)
    (tmp_path / f"{_NAME}.lock").symlink_to(target)
    journal = JournalFile(LocalFolder(tmp_path), _NAME)
    journal.load()
    journal.append(['{"n":1}'])
    assert list(tmp_path.iterdir()) == [tmp_path / _NAME]


def test_one_at_a_time_holds_the_lock(tmp_path: Path) -> None:
    n_holding, most = 0, 0

    def hold(_: int) -> None:
        nonlocal n_holding, most
        for _ in range(10):
            with locked(tmp_path / _NAME):
                n_holding += 1
                most = max(most, n_holding)
                n_holding -= 1

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(hold, range(3)))
    assert most == 1
