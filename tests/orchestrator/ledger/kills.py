"""Kills at every step of every write to a sweep, and of a writer in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq
import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.place_names import PlaceName

STEPS: Collection[tuple[Any, str]] = (
    (os, "open"),
    (os, "mkdir"),
    (os, "replace"),
    (os, "unlink"),
    (os, "fsync"),
    (pq.ParquetWriter, "write_batch"),
)
"""The steps of a write to a disk."""

Root = TypeVar("Root", bound=PlaceName)


class Crash(BaseException):
    """Simulates a killed process."""


def crashes(root: Root, act: Callable[[Root], object], step: int, steps: Collection[tuple[Any, str]] = STEPS) -> bool:
    """Runs the action until this step, after which no step has an effect. Returns whether the action came so far."""
    n_done = 0

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **kwargs: Any) -> Any:
            nonlocal n_done
            if n_done >= step:
                raise Crash
            n_done += 1
            return real(*args, **kwargs)

        return act

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in steps:
            patch.setattr(owner, name, dying(getattr(owner, name)))
        try:
            act(root)
        except Crash:
            return True
    return False


_WRITER = """
import sys
from attnsweep.orchestrator.ledger import compaction
from attnsweep.orchestrator.storage.place_names import place_of
from tests.orchestrator.ledger.ledger_rows import open_writer, pack_rows
compaction.MAX_FRAGMENTS = int(sys.argv[2])
with open_writer(place_of(sys.argv[1])) as writer:
    for trial in range(100_000):
        writer.commit(f"p{trial}", *pack_rows(f"p{trial}", [(trial, 0)], n_steps=1))
        print(trial, flush=True)
"""


def read_beside_a_writer_and_kill_it(
    root: PlaceName, n_commits: int, max_fragments: int, before: Callable[[int], object] = lambda _: None
) -> int:
    """Reads the ledger after each commit of a writer in another process, and kills the writer after some commits.

    Args:
        before: Called with the writer's process id before it is killed.

    Returns:
        The number of commits that the writer has reported.
    """
    command = [sys.executable, "-c", _WRITER, str(root), str(max_fragments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        for line in process.stdout:
            committed = int(line) + 1
            trials = Ledger(root).trainings(columns=["trial"])["trial"].to_pylist()
            assert sorted(trials) == list(range(len(trials)))
            assert len(trials) >= committed
            if committed >= n_commits:
                break
        before(process.pid)
        process.kill()
        return max([committed, *(int(line) + 1 for line in process.stdout)])
