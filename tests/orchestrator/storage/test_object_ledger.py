"""The ledger in an object store: as on a disk, but without renames, and with a lease as the lock."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from moto.s3.responses import S3Response

from attnsweep.orchestrator.ledger import compaction
from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage import locks as owner
from attnsweep.orchestrator.storage import s3
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.locks import LEASE_FILE
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from tests.orchestrator.ledger.kills import Crash, crashes
from tests.orchestrator.ledger.ledger_rows import commit, committed_keys, held, keys_of, open_writer, pack_rows
from tests.orchestrator.storage.object_store import copy_of, leave_lease, new_prefix, object_names

OPEN_FILE = ObjectPrefix.open_file


pytestmark = pytest.mark.usefixtures("s3")


@pytest.fixture
def prefix() -> ObjectPrefix:
    return new_prefix()


def parquet(prefix: ObjectPrefix) -> set[str]:
    return {name for name in object_names(prefix) if name.endswith(".parquet")}


def test_what_is_committed_is_read_back_as_from_a_disk(
    prefix: ObjectPrefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MAX_FRAGMENTS", 3)
    for root in (prefix, tmp_path):
        commit(root, *range(5))
    assert held(prefix) == keys_of(*range(5))
    by = [("trial", "ascending"), ("replicate", "ascending")]
    on_disk = Ledger(tmp_path).trainings().sort_by(by).to_pylist()
    assert Ledger(prefix).trainings().sort_by(by).to_pylist() == on_disk
    sql = "SELECT * FROM trials ORDER BY trial"
    answers = [
        Ledger(root).ask(lambda connection: connection.sql(sql).to_arrow_table().to_pylist())
        for root in (prefix, tmp_path)
    ]
    assert answers[0] == answers[1]
    compact(prefix)
    assert len(parquet(prefix)) == 3
    assert held(prefix) == keys_of(*range(5))
    assert prefix.read_text(LEASE_FILE) == ""


REQUESTS = [(ObjectPrefix, name) for name in ("_put", "swap_text", "remove")]
"""The steps of a write to an object store."""


@pytest.mark.sample("commit")
@pytest.mark.parametrize("act", [lambda prefix: commit(prefix, 2), compact], ids=["commit", "compact"])
def test_a_crash_at_any_request_leaves_each_pack_whole_or_not_at_all(act: Callable[[ObjectPrefix], None]) -> None:
    seen = set()
    before = new_prefix()
    commit(before, 0, 1)
    for step in range(60):
        prefix = copy_of(before)
        crashed = crashes(prefix, act, step, REQUESTS)
        found = committed_keys(prefix)
        assert found in (keys_of(0, 1), keys_of(0, 1, 2))
        # The holder is this process, which is alive, so nobody may take its lease before it expires.
        prefix.put_text(LEASE_FILE, "")
        with open_writer(prefix):
            assert held(prefix) == found
        assert {name.partition("/")[2] for name in parquet(prefix) if name.startswith("curves/")} == {
            name.partition("/")[2] for name in parquet(prefix) if name.startswith("trainings/")
        }
        seen.add((crashed, found == keys_of(0, 1)))
        if not crashed:
            break
    assert not crashed
    assert step > 5
    assert (True, True) in seen


def test_what_a_killed_writer_had_sent_may_appear_before_its_lock_is_taken_over(
    prefix: ObjectPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late upload is the file in `trainings`. Later, the new writer would have removed those in `curves` and
    `heads`."""
    commit(prefix, 0)
    put = ObjectPrefix._put
    sent = []

    def killed(self: ObjectPrefix, name: str, content: bytes | Path) -> None:
        if name.startswith("trainings/"):
            assert isinstance(content, Path)
            sent.append((name, content.read_bytes()))
            raise Crash
        put(self, name, content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectPrefix, "_put", killed)
        with pytest.raises(Crash):
            commit(prefix, 1)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    leave_lease(prefix, process.pid, owner._processes())
    monkeypatch.setattr(time, "sleep", lambda _: put(prefix, *sent[0]))
    with open_writer(prefix):
        assert held(prefix) == keys_of(0, 1)


@pytest.mark.sample("none-1", "error-3")
@pytest.mark.parametrize("n_removed", [1, 2, 3])
@pytest.mark.parametrize(
    "answer", [FileNotFoundError(2, "gone", "x"), StoreError("x", given="", expected="", fix="")], ids=["none", "error"]
)
def test_a_reader_that_a_compaction_overtakes_opens_again(
    prefix: ObjectPrefix, n_removed: int, answer: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing object may appear as missing or as an error, depending on the store."""
    commit(prefix, 0, 1)

    def overtaken(self: ObjectPrefix, folder: str, name: str) -> Any:
        if folder == "curves" and not name.startswith("merged"):
            _compact_until(prefix, n_removed)
            raise answer
        return OPEN_FILE(self, folder, name)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectPrefix, "n_at_once", 1)
        patch.setattr(ObjectPrefix, "open_file", overtaken)
        assert committed_keys(prefix) == keys_of(0, 1)


def test_an_opened_file_is_read_after_its_removal(prefix: ObjectPrefix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_PART_BYTES", 500)
    commit(prefix, 0, 1)
    with Ledger(prefix).connect() as connection:
        compact(prefix)
        assert connection.sql("select count(*) from curves").fetchall() == [(24,)]


def test_a_signal_during_an_upload_does_not_cut_it_off(prefix: ObjectPrefix, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, signals = S3Response.put_object, iter([signal.SIGINT])

    def interrupting(response: S3Response) -> Any:
        for number in signals:
            os.kill(os.getpid(), number)
        return answer(response)

    with monkeypatch.context() as patch:
        patch.setattr(S3Response, "put_object", interrupting)
        with pytest.raises(KeyboardInterrupt):
            prefix.put_text("x/whole", "whole")
    assert prefix.read_text("x/whole") == "whole"


def _compact_until(prefix: ObjectPrefix, n_removed: int) -> None:
    """Compacts, and is killed once the files of this many tables are removed."""
    remove = ObjectPrefix.remove
    removed = 0

    def dying(self: ObjectPrefix, folder: str, files: Any) -> None:
        nonlocal removed
        if files:
            if removed == n_removed:
                raise Crash
            removed += 1
        remove(self, folder, files)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Crash):
        patch.setattr(ObjectPrefix, "remove", dying)
        patch.setattr(ObjectPrefix, "open_file", OPEN_FILE)
        compact(prefix)


@pytest.mark.sample("trainings")
@pytest.mark.parametrize("table", ["curves", "heads", "trainings"])
def test_a_store_that_refuses_a_write_ends_the_commit_and_takes_it_later(
    prefix: ObjectPrefix, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers that it has no room for the files of a table."""
    commit(prefix, 0)
    answer = S3Response.put_object
    refused = False

    def full(response: S3Response) -> Any:
        nonlocal refused
        if f"/{table}/" not in response.path:
            return answer(response)
        refused = True
        return 507, {}, ""

    with monkeypatch.context() as patch, open_writer(prefix) as writer:
        patch.setattr(S3Response, "put_object", full)
        with pytest.raises(StoreError):
            writer.commit("p1", *pack_rows("p1", [(1, 0), (1, 1)]))
    assert refused
    assert held(prefix) == keys_of(0)
    commit(prefix, 1)
    assert held(prefix) == keys_of(0, 1)
