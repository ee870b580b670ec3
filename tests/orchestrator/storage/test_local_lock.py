"""One writer at a time in a directory: the second is told who the first is; a dead process holds no lock."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.locks import Owner
from attnsweep.workloads.errors import UserError
from tests.orchestrator.ledger.ledger_rows import committed_keys, open_writer, pack_rows

HOLDER = """
import sys
from pathlib import Path
from attnsweep.orchestrator.storage.local import LocalFolder
held = LocalFolder(Path(sys.argv[1])).lock(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def _held(root: Path, work: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it is killed or the test ends."""
    command = [sys.executable, "-c", HOLDER, str(root), work]
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
    with open_writer(tmp_path) as writer:
        writer.commit("p0", *pack_rows("p0", [(0, 0)]))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("work", ["resume", "mlflow-sync"])
def test_the_second_is_told_who_is_at_work(root: Path, work: str) -> None:
    with _held(root, work) as process:
        holder = Owner.from_json((root / ".ledger.lock").read_text())
        assert holder is not None
        assert (holder.work, holder.pid) == (work, process.pid)
        assert not holder.is_dead
        # Twice: a refused writer must not erase the holder's name.
        for act in (compact, open_writer, compact, open_writer):
            with pytest.raises(UserError) as refused:
                act(root)
            assert str(refused.value) == (
                f"{root}: got 'a sweep that another process works on ({work}, pid {process.pid} on {holder.host}, "
                f"since {holder.since})', expected one process at a time; wait until that process ends, or stop it"
            )


@pytest.mark.slow
def test_a_killed_holder_holds_nothing(root: Path) -> None:
    with _held(root, "resume") as process:
        process.kill()
        process.wait()
        left = Owner.from_json((root / ".ledger.lock").read_text())
        assert left is not None
        assert left.is_dead
        with open_writer(root) as writer:
            writer.commit("p1", *pack_rows("p1", [(1, 0)]))
            with pytest.raises(UserError, match=rf"works on \(resume, pid {os.getpid()} on "):
                compact(root)
    assert committed_keys(root) == {(0, 0), (1, 0)}


def test_the_first_writer_runs_and_later_ones_resume(tmp_path: Path) -> None:
    for work in ("run", "resume"):
        with open_writer(tmp_path), pytest.raises(UserError, match=rf"works on \({work}, pid "):
            compact(tmp_path)


def test_who_has_given_it_back_is_not_named(root: Path) -> None:
    lock = LocalFolder(root).lock("compact")
    lock.close()
    lock.close()
    assert (root / ".ledger.lock").read_text() == ""


@pytest.mark.parametrize("text", ["", "{", "[]", '{"work": "run"}'])
def test_a_holder_that_has_not_written_its_name_yet_is_respected_all_the_same(root: Path, text: str) -> None:
    # The lock belongs to an open file, so it also excludes this process.
    with closing(LocalFolder(root).lock("resume")):
        (root / ".ledger.lock").write_text(text)
        with pytest.raises(
            UserError, match="got 'a sweep that another process works on', expected one process at a time"
        ):
            compact(root)
