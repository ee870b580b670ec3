"""One writer at a time: the second is told who the first is. A dead process holds no lock."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.storage.errors import TakenError
from attnsweep.orchestrator.storage.locks import Lock
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.ledger.ledger_rows import commit, committed_keys, open_writer, pack_rows
from tests.orchestrator.small_sweep import small_sweep

HOLDER = """
import sys
from pathlib import Path
from attnsweep.orchestrator.storage.locks import Lock
held = Lock(Path(sys.argv[1]), "resume")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def _held(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it is killed or the test ends."""
    command = [sys.executable, "-c", HOLDER, str(root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    commit(tmp_path, 0, n_replicates=1)
    return tmp_path


@pytest.mark.slow
def test_the_second_is_told_who_is_at_work(root: Path) -> None:
    with _held(root) as process:
        # Twice: a refused writer must not erase the holder's name.
        for act in (compact, open_writer, compact, open_writer):
            with pytest.raises(TakenError, match=rf"works on \(resume, pid {process.pid} on .*, since "):
                act(root)


def test_who_comes_while_another_makes_a_sweep_is_refused(tmp_path: Path) -> None:
    with closing(Lock(tmp_path, "run")), pytest.raises(TakenError):
        SweepDirectory.create(tmp_path, small_sweep("second"), {})
    assert [file.name for file in tmp_path.iterdir()] == [".lock"]


@pytest.mark.slow
def test_a_killed_holder_holds_nothing(root: Path) -> None:
    with _held(root) as process:
        process.kill()
        process.wait()
        with open_writer(root) as writer:
            writer.commit("p1", *pack_rows("p1", [(1, 0)]))
            with pytest.raises(TakenError, match=rf"works on \(resume, pid {os.getpid()} on "):
                compact(root)
    assert committed_keys(root) == {(0, 0), (1, 0)}
