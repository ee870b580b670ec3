"""One writer at a time: the second is told who the first is. A dead process holds no lock in a directory, and its lease
in an object store expires."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.storage import locks
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.locks import LEASE_FILE, ObjectLock, Owner
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.workloads.errors import UserError
from tests.orchestrator.ledger.ledger_rows import commit, committed_keys, held, keys_of, open_writer, pack_rows
from tests.orchestrator.storage.object_store import leave_lease, new_prefix

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
    commit(tmp_path, 0, n_replicates=1)
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
            assert f"({work}, pid {process.pid} on {holder.host}, since {holder.since})" in str(refused.value.given)


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


@pytest.mark.parametrize("text", ["", "{", "[]", '{"work": "run"}'])
def test_a_holder_that_has_not_written_its_name_yet_is_respected_all_the_same(root: Path, text: str) -> None:
    # The lock belongs to an open file, so it also excludes this process.
    with closing(LocalFolder(root).lock("resume")):
        (root / ".ledger.lock").write_text(text)
        with pytest.raises(
            UserError, match="got 'a sweep that another process works on', expected one process at a time"
        ):
            compact(root)


@pytest.fixture
def prefix(s3: str) -> ObjectPrefix:
    del s3
    return new_prefix()


def test_who_slept_through_its_lease_does_not_commit_beside_another(
    prefix: ObjectPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(prefix)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 1000)
    writer.commit("p0", *pack_rows("p0", [(0, 0)]))
    monkeypatch.setattr(time, "time", lambda: now() + 2000)
    leave_lease(prefix)
    with pytest.raises(UserError, match="another process works on"):
        writer.commit("p1", *pack_rows("p1", [(1, 0)]))
    writer.close()
    assert committed_keys(prefix) == {(0, 0)}


def test_who_was_robbed_of_its_lease_learns_it_and_leaves_it_to_the_other(
    prefix: ObjectPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has come, worked and gone meanwhile: what the first knows of the ledger is out of date."""
    first = open_writer(prefix)
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.0)
    commit(prefix, 0)
    with pytest.raises(UserError, match="got 'a sweep that another process works on'"):
        first.commit("p1", *pack_rows("p1", [(1, 0), (1, 1)]))
    first.close()
    assert prefix.read_text(LEASE_FILE) == ""
    assert held(prefix) == keys_of(0)


def test_a_renewal_whose_answer_was_lost_is_one(prefix: ObjectPrefix, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks again, and the store refuses: the object has changed since."""
    swap = ObjectPrefix.swap_text

    def repeated(self: ObjectPrefix, name: str, text: str, version: str | None) -> str | None:
        swap(self, name, text, version)
        return swap(self, name, text, version)

    monkeypatch.setattr(ObjectPrefix, "swap_text", repeated)
    prefix.put_new_text("sweep.json", "mine")
    with closing(prefix.lock("run")) as lock:
        monkeypatch.setattr(locks, "LEASE_SECONDS", 0.0)
        lock.confirm()
        lock.confirm()
    assert prefix.read_text(LEASE_FILE) == ""
    with pytest.raises(FileExistsError):
        prefix.put_new_text("sweep.json", "another's")


def test_a_renewal_that_was_done_after_all_is_no_loss(prefix: ObjectPrefix, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has given up, each time that it asked."""
    swap = ObjectPrefix.swap_text

    def unanswered(self: ObjectPrefix, name: str, text: str, version: str | None) -> str | None:
        swap(self, name, text, version)
        raise StoreError(str(self), given="no answer (Timeout)", expected="one", fix="")

    def renew_in_vain() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ObjectPrefix, "swap_text", unanswered)
            with pytest.raises(StoreError, match="no answer"):
                lock.confirm()

    with closing(prefix.lock("run")) as lock:
        monkeypatch.setattr(locks, "LEASE_SECONDS", 0.0)
        renew_in_vain()
        lock.confirm()
        renew_in_vain()
    assert prefix.read_text(LEASE_FILE) == ""


def test_of_many_who_want_it_at_once_one_has_the_lock(s3: str) -> None:
    for _ in range(15):
        prefix = new_prefix()
        with ThreadPoolExecutor(4) as threads:
            taken = [lock for lock in threads.map(_lock, [prefix] * 4) if lock is not None]
        assert len(taken) == 1
        for lock in taken:
            lock.close()


def _lock(prefix: ObjectPrefix) -> ObjectLock | None:
    try:
        return prefix.lock("run")
    except UserError:
        return None
