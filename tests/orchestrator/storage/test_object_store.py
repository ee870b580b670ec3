"""Sweeps in an object store: copies on several machines, one driver at a time, and what a store refuses."""

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from moto.core import set_initial_no_auth_action_count
from moto.s3.responses import S3Response

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.storage import object_store as store
from attnsweep.orchestrator.storage.copies import name_of
from attnsweep.orchestrator.storage.errors import StoreError, TakenError
from attnsweep.orchestrator.storage.files import remove, write_text
from attnsweep.orchestrator.storage.locks import Lock
from attnsweep.orchestrator.storage.place_names import BULK, place_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.commands import command
from tests.orchestrator.ledger.kills import crashes
from tests.orchestrator.ledger.ledger_rows import commit, committed_keys, held, keys_of, open_writer, pack_rows
from tests.orchestrator.small_sweep import small_sweep
from tests.orchestrator.storage.object_store import BUCKET, another_machine, claim_of, leave_claim, new_prefix, objects

pytestmark = pytest.mark.usefixtures("s3")


@pytest.fixture
def uri() -> str:
    """A sweep of two packs."""
    uri = new_prefix()
    SweepDirectory.create(uri, small_sweep("s"), {})
    commit(uri, 0, 1)
    return uri


def _no_claim_lasts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store, "_age", lambda *_: 2 * store.CLAIM_SECONDS)


def test_another_machine_reads_and_continues_what_was_committed(uri: str) -> None:
    with another_machine():
        assert held(place_of(uri)) == keys_of(0, 1)
        commit(uri, 2)
        compact(uri)
    assert {name for name in objects(uri) if name.endswith(".parquet")} == {
        f"{table}/{path.name}"
        for table in ("trainings", "curves", "heads")
        for path in place_of(uri).glob("trainings/*")
    }
    assert held(place_of(uri)) == keys_of(0, 1, 2)
    assert claim_of(uri)["holder"] == ""


REQUESTS = [(store, "upload"), (store, "delete"), (store, "_swap")]
"""The steps of a write to an object store."""


@pytest.mark.parametrize("act", [lambda uri: commit(uri, 2), compact], ids=["commit", "compact"])
def test_a_kill_at_any_request_leaves_each_pack_whole_or_not_at_all(act: Callable[[str], None]) -> None:
    """Another machine goes on with what was uploaded, this one also with what was only committed here."""
    for step in range(40):
        uri = new_prefix()
        SweepDirectory.create(uri, small_sweep("s"), {})
        commit(uri, 0, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store.Claim, "close", lambda claim: claim._closed.set())
            crashed = crashes(uri, act, step, REQUESTS)
        with another_machine(), pytest.MonkeyPatch.context() as patch:
            _no_claim_lasts(patch)
            assert committed_keys(uri) in (keys_of(0, 1), keys_of(0, 1, 2))
            if step % 2:
                commit(uri, *({2} - {trial for trial, _ in committed_keys(uri)}))
        with open_writer(uri) as writer:
            assert writer.set_aside == {}
        found = held(place_of(uri))
        assert found in (keys_of(0, 1), keys_of(0, 1, 2))
        with another_machine():
            assert held(place_of(uri)) == found
        if not crashed:
            break
    assert not crashed
    assert step > 4


def test_a_reader_whom_a_compaction_overtakes_looks_again(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, fetch = os.environ["XDG_STATE_HOME"], store._fetch

    def overtaken(path: Path, size: int) -> None:
        if path.parent.name == "curves":
            monkeypatch.undo()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("XDG_STATE_HOME", here)
                compact(uri)
        fetch(path, size)

    with another_machine():
        monkeypatch.setattr(store, "_fetch", overtaken)
        assert held(place_of(uri)) == keys_of(0, 1)
    assert sum(name.startswith("curves/") for name in objects(uri)) == 1


def test_a_reader_fetches_only_what_it_reads_and_what_is_new(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(place_of(uri), "checkpoints/p9.parquet", "large")
    fetched: list[str] = []
    fetch = store._fetch

    def noted(path: Path, size: int) -> None:
        fetched.append(path.parent.name)
        fetch(path, size)

    monkeypatch.setattr(store, "_fetch", noted)
    with another_machine():
        place_of(uri, without=BULK)
        assert set(fetched) == {"trainings", Path(uri).name}
        place_of(uri)
        assert fetched.count("trainings") == fetched.count("curves") == 2
        assert "checkpoints" not in fetched
        with open_writer(uri):
            assert (place_of(uri) / "checkpoints" / "p9.parquet").read_text() == "large"


def test_what_could_not_be_uploaded_is_kept_and_uploaded_by_the_next_run(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = S3Response.put_object

    def full(response: S3Response) -> Any:
        return (507, {}, "") if "/trainings/" in response.path else answer(response)

    with monkeypatch.context() as patch, open_writer(uri) as writer:
        patch.setattr(S3Response, "put_object", full)
        with pytest.raises(StoreError):
            writer.commit("p2", *pack_rows("p2", [(2, 0), (2, 1)]))
    assert held(place_of(uri)) == keys_of(0, 1, 2)
    with another_machine():
        assert held(place_of(uri)) == keys_of(0, 1)
    with open_writer(uri):
        pass
    with another_machine():
        assert held(place_of(uri)) == keys_of(0, 1, 2)


def test_a_copy_that_another_has_overtaken_gives_up_what_was_never_uploaded(uri: str) -> None:
    """The other driver has trained it again."""
    place = place_of(uri)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "upload", lambda _: None)
        commit(place, 2)
    with another_machine():
        commit(uri, 2)
    with open_writer(uri) as writer:
        assert writer.set_aside == {}
    assert held(place) == keys_of(0, 1, 2)


def test_the_second_machine_is_told_who_drives_until_the_claim_expires(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_writer(uri) as writer:
        with another_machine():
            with pytest.raises(TakenError, match=rf"\(resume, pid {os.getpid()} on .*; after it was killed"):
                open_writer(uri)
            _no_claim_lasts(monkeypatch)
            commit(uri, 2)
        # Suspended for long, the first one finds out before it writes.
        before, now = objects(uri), time.time
        monkeypatch.setattr(time, "time", lambda: now() + store.CLAIM_SECONDS)
        with pytest.raises(StoreError, match="another process has taken over"):
            writer.commit("p3", *pack_rows("p3", [(3, 0)]))
    assert objects(uri) == before
    assert held(place_of(uri)) == keys_of(0, 1, 2)


def test_of_two_that_claim_a_sweep_at_once_one_is_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = store._read_claim

    def overtaken(path: Path) -> Any:
        found = read(path)
        monkeypatch.undo()
        leave_claim(uri)
        return found

    monkeypatch.setattr(store, "_read_claim", overtaken)
    with pytest.raises(TakenError, match="pid 1 on elsewhere"):
        open_writer(uri)


def test_a_driver_that_was_killed_here_holds_nothing(uri: str) -> None:
    leave_claim(uri)
    with pytest.raises(TakenError, match="pid 1 on elsewhere"):
        open_writer(uri)
    with pytest.MonkeyPatch.context() as patch:
        _no_claim_lasts(patch)
        patch.setattr(store.Claim, "close", lambda claim: claim._closed.set())
        open_writer(uri).close()
    assert claim_of(uri)["holder"] != ""
    with open_writer(uri):
        pass


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_renewal_whose_answer_was_lost_is_no_loss(
    uri: str, is_answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks again, and the store refuses; or it has given up."""
    swap = store._swap

    def repeated(path: Path, text: str, version: str | None) -> str | None:
        swap(path, text, version)
        if is_answered:
            return swap(path, text, version)
        raise StoreError(str(path), given="no answer", expected="one", fix="")

    with closing(Lock(place_of(uri), "run")) as lock:
        assert lock._claim is not None
        with monkeypatch.context() as patch:
            patch.setattr(store, "_swap", repeated)
            for _ in range(2):
                with suppress(StoreError):
                    lock._claim._renew()
        lock._claim._renew()
    assert claim_of(uri)["holder"] == ""


def _mistake(*words: object) -> str:
    """The message of a command that the user must correct: one line without a secret."""
    ended = command(*words)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "planted-secret" not in ended.err
    return ended.err


WORDS = [("run", "quickstart", "--local", "--dir"), ("status",), ("resume",), ("compact",), ("mlflow-sync",)]
commands = pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])


@commands
def test_a_bucket_that_is_not_there(words: tuple[str, ...]) -> None:
    assert "NoSuchBucket" in _mistake(*words, "s3://no-such-bucket/x")


@commands
def test_credentials_that_are_wrong(words: tuple[str, ...]) -> None:
    error = set_initial_no_auth_action_count(0)(_mistake)(*words, f"s3://{BUCKET}/x")
    assert error.startswith(f"attnsweep: s3://{BUCKET}/x: got 'InvalidAccessKeyId")
    assert "AWS_ACCESS_KEY_ID" in error


def test_a_store_that_is_gone_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(store, "_RETRIES", 0)
    ended = command("status", f"s3://{BUCKET}/x")
    assert (ended.code, ended.err.count("\n")) == (1, 1)


def test_a_prefix_that_holds_something_else_is_refused_and_not_downloaded() -> None:
    uri = new_prefix()
    inside = place_of(f"{uri}/inside")
    inside.mkdir(parents=True)
    write_text(inside, "data.csv", "1")
    place = place_of(uri)
    assert "--dir" in _mistake("run", "quickstart", "--local", "--dir", uri)
    assert [path.name for path in place.rglob("*.csv")] == ["data.csv"]
    remove([inside / "data.csv"])
    assert objects(uri) == {}
    assert name_of(place) == uri
