"""An error of the operating system says nothing about a file's content: it stops the command, and nothing is moved.

Reading `/proc/self/mem` at its beginning fails with EIO, and a limit of this process makes opening fail with EMFILE.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.aside import set_damage_aside
from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.checkpoints import Checkpoints
from attnsweep.orchestrator.storage.copies import CHECKPOINTS
from attnsweep.orchestrator.storage.errors import in_words
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.ledger.ledger_rows import commit, held, keys_of
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.storage.limits import may_open

EIO = os.strerror(errno.EIO)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three packs of two trainings."""
    path = tmp_path / "sweep"
    SweepDirectory.create(path, small_sweep("s"), {})
    commit(path, 0, 1, 2)
    return path


KEYS = keys_of(0, 1, 2)


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """Every read of this file fails."""
    kept = path.rename(path.with_name("kept"))
    path.symlink_to("/proc/self/mem")
    yield
    assert path.is_symlink(), "the file was moved or replaced"
    kept.rename(path)


def files_of(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


def test_whichever_file_cannot_be_opened_nothing_is_moved_or_removed(root: Path) -> None:
    files = files_of(root)
    acts: dict[str, Callable[[], object]] = {
        "examine": lambda: set_damage_aside(root),
        "read": lambda: Ledger(root).curves(),
        "compact": lambda: compact(root),
    }
    for name, act in acts.items():
        for n_files in range(40):
            with may_open(n_files):
                try:
                    act()
                except OSError as stopped:
                    said = in_words(stopped)
                else:
                    break
            assert os.strerror(errno.EMFILE) in said
            assert str(root) in said
            assert files_of(root) == files
        assert n_files > 2, name
    assert held(root) == KEYS


def test_a_checkpoint_that_fails_to_be_read_stays(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINTS).mkdir()
    path = tmp_path / CHECKPOINTS / "a-0123.parquet"
    path.touch()
    with failing(path), pytest.raises(OSError, match=path.name):
        Checkpoints(tmp_path).load()
    assert Checkpoints(tmp_path).load() == []
    assert not path.exists()
