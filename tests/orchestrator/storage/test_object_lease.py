"""The lease of an object store's one writer: taken, renewed, given back, lost."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from moto.s3.responses import S3Response

from attnsweep.orchestrator.storage import locks as object_lock
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.locks import LEASE_FILE, ObjectLock
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.workloads.errors import UserError
from tests.orchestrator.ledger.ledger_rows import committed_keys, open_writer, pack_rows
from tests.orchestrator.storage.object_store import leave_lease, new_prefix, object_names
from tests.orchestrator.storage.test_object_ledger import commit, held, keys

pytestmark = pytest.mark.usefixtures("s3")


@pytest.fixture
def prefix() -> ObjectPrefix:
    return new_prefix()


def test_anothers_lease_is_respected_until_it_runs_out(prefix: ObjectPrefix, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_lease(prefix)
    with pytest.raises(UserError) as refused:
        open_writer(prefix)
    assert str(refused.value) == (
        f"{prefix}: got 'a sweep that another process works on (compact, pid 7 on elsewhere, "
        "since 2025-11-01 12:00:00 UTC)', expected one process at a time; "
        "wait until it ends, or for 5 minutes after it was killed"
    )
    assert object_names(prefix) == {LEASE_FILE}
    monkeypatch.setattr(object_lock, "LEASE_SECONDS", 0.0)
    commit(prefix, 0)
    assert prefix.read_text(LEASE_FILE) == ""


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
    monkeypatch.setattr(object_lock, "LEASE_SECONDS", 0.0)
    commit(prefix, 0)
    with pytest.raises(UserError, match="got 'a sweep that another process works on'"):
        first.commit("p1", *pack_rows("p1", [(1, 0), (1, 1)]))
    first.close()
    assert prefix.read_text(LEASE_FILE) == ""
    assert held(prefix) == keys(0)


def test_a_renewal_whose_answer_was_lost_is_one(prefix: ObjectPrefix, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks again, and the store refuses: the object has changed since."""
    swap = ObjectPrefix.swap_text

    def repeated(self: ObjectPrefix, name: str, text: str, version: str | None) -> str | None:
        swap(self, name, text, version)
        return swap(self, name, text, version)

    monkeypatch.setattr(ObjectPrefix, "swap_text", repeated)
    prefix.put_new_text("sweep.json", "mine")
    with closing(prefix.lock("run")) as lock:
        monkeypatch.setattr(object_lock, "LEASE_SECONDS", 0.0)
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
        monkeypatch.setattr(object_lock, "LEASE_SECONDS", 0.0)
        renew_in_vain()
        lock.confirm()
        renew_in_vain()
    assert prefix.read_text(LEASE_FILE) == ""


def test_of_many_who_want_it_at_once_one_has_the_lock() -> None:
    for _ in range(15):
        prefix = new_prefix()
        with ThreadPoolExecutor(4) as threads:
            locks = [lock for lock in threads.map(_lock, [prefix] * 4) if lock is not None]
        assert len(locks) == 1
        for lock in locks:
            lock.close()


def _lock(prefix: ObjectPrefix) -> ObjectLock | None:
    try:
        return prefix.lock("run")
    except UserError:
        return None


def test_a_store_without_conditional_writes_is_refused(prefix: ObjectPrefix, monkeypatch: pytest.MonkeyPatch) -> None:
    put = S3Response.put_object

    def ignoring(response: S3Response) -> Any:
        conditions = ("if-none-match", "if-match")
        response.headers = {name: value for name, value in response.headers.items() if name.lower() not in conditions}
        return put(response)

    monkeypatch.setattr(S3Response, "put_object", ignoring)
    with pytest.raises(StoreError, match="overwrites an object in spite of If-None-Match"):
        prefix.lock("run")
