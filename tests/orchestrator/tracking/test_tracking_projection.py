"""A running sweep is projected to MLflow, whatever MLflow does. Real MLflow on a real database."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking import Projection, SyncResult, sync
from attnsweep.orchestrator.tracking.sync import Mirror
from attnsweep.workloads.errors import UserError
from tests.orchestrator.mlflow_runs import default_store, everything_stored, runs_of
from tests.orchestrator.small_sweep import FINISHED, commit, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.present import present

SOLVED = ["solved"] * 4
FINISHED_MS = round(FINISHED.timestamp() * 1000)


@pytest.fixture(scope="module", autouse=True)
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowClient]:
    with default_store(tmp_path_factory.mktemp("work")) as store:
        yield store


def _wait_until(condition: Callable[[], bool], projection: Projection) -> None:
    while not condition():
        assert projection._thread.is_alive()
        threading.Event().wait(0.01)


@pytest.mark.slow
def test_a_running_sweep_is_projected_while_its_ledger_grows(client: MlflowClient, tmp_path: Path) -> None:
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("running", trials=40), {})
    progress = []
    with open_writer(directory) as writer:
        projection = Projection(directory)
        for trial in range(40):
            commit(writer, trial_rows(trial, SOLVED))
            if trial != 13:
                projection.trial_told(trial)
        result = projection.close(on_progress=lambda *done: progress.append(done))
    assert projection.problem is None
    assert result == SyncResult(n_logged=40, n_present=0)
    assert progress == [(done, len(progress)) for done in range(1, len(progress) + 1)]
    assert {run.info.status for run in runs_of(client, directory)} == {"FINISHED"}
    [parent] = runs_of(client, directory, "sweep")
    assert (parent.info.status, parent.data.metrics["n_trainings"]) == ("FINISHED", 160)
    assert sync(directory) == SyncResult(n_logged=0, n_present=40)


@pytest.mark.slow
def test_a_resumed_sweep_goes_on_in_its_parent_run(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("resumed"), trial_rows(0, SOLVED))
    sync(directory)
    with open_writer(directory) as writer:
        projection = Projection(directory)
        _wait_until(lambda: runs_of(client, directory, "sweep")[0].info.status == "RUNNING", projection)
        commit(writer, trial_rows(1, SOLVED))
        projection.trial_told(1)
        assert projection.close() == SyncResult(n_logged=1, n_present=1)
    [parent] = runs_of(client, directory, "sweep")
    assert (parent.info.status, parent.info.end_time) == ("FINISHED", FINISHED_MS + 1000)


@pytest.mark.slow
def test_a_sweep_goes_on_without_mlflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with_password, shown = address.replace("//", "//me:secret@"), address.replace("//", "//...@")
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("down"), trial_rows(0, SOLVED), trial_rows(1, SOLVED))
    with caplog.at_level(logging.WARNING, logger="attnsweep.orchestrator.tracking"):
        projection = Projection(directory, with_password, retry_seconds=0.0)
        for _ in range(10_000):
            projection.trial_told(0)
        assert projection.close() == SyncResult(0, 0)
    problem = present(projection.problem)
    assert problem.endswith("(ConnectionRefusedError: [Errno 111] Connection refused)")
    assert "\n" not in problem
    [warning] = [record.getMessage() for record in caplog.records if record.name.startswith("attnsweep")]
    assert f"MLflow ({shown}): MlflowException: " in warning
    assert "secret" not in warning
    assert warning.endswith(f"; the sweep goes on, `attnsweep mlflow-sync {directory.place}` logs what is missing")
    with pytest.raises(UserError, match=f"--tracking-uri: got '{shown}', expected an MLflow store that answers"):
        sync(directory, with_password)
    assert sync(directory) == SyncResult(n_logged=2, n_present=0)


@pytest.mark.slow
def test_mlflow_that_comes_back_gets_what_it_missed(client: MlflowClient, tmp_path: Path) -> None:
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("back"), {})
    # No ledger yet: the first attempt fails, as if the store were away.
    projection = Projection(directory, retry_seconds=0.0)
    _wait_until(lambda: projection.problem is not None, projection)
    with open_writer(directory) as writer:
        for trial in range(3):
            commit(writer, trial_rows(trial, SOLVED))
        projection.trial_told(2)
        _wait_until(lambda: [run.info.status for run in runs_of(client, directory)] == ["FINISHED"] * 3, projection)
        assert projection.problem is None
        assert projection.close() == SyncResult(n_logged=3, n_present=0)


@pytest.mark.slow
def test_a_sweep_that_another_process_works_on_is_not_synced(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("beside"), trial_rows(0, SOLVED))
    before = everything_stored()
    with (
        open_writer(directory),
        pytest.raises(UserError, match=r"got 'a sweep that another process works on \(resume, pid "),
    ):
        sync(directory)
    assert everything_stored() == before

    refused = []

    def try_to_run(*_: int) -> None:
        with pytest.raises(UserError) as refusal:
            open_writer(directory)
        refused.append(refusal)

    assert sync(directory, on_progress=try_to_run) == SyncResult(n_logged=1, n_present=0)
    assert len(refused) == 1
    with open_writer(directory):
        assert Projection(directory).close() == SyncResult(n_logged=0, n_present=1)


@pytest.mark.slow
def test_closing_in_haste_leaves_the_rest_to_sync(
    client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("haste"), {})
    hold, reached = threading.Event(), threading.Event()

    def wait(*_: int) -> None:
        reached.set()
        hold.wait()

    # No ledger yet: nothing is logged before it is closed.
    projection = Projection(directory, retry_seconds=1e9)
    _wait_until(lambda: projection.problem is not None, projection)
    with open_writer(directory) as writer:
        for trial in range(4):
            commit(writer, trial_rows(trial, SOLVED))
    # The 0.1 s end once a trial is logged, however slow the machine.
    monkeypatch.setattr(projection, "_wait", lambda _: reached.wait(60))
    projection.close(0.1, wait)
    assert projection.problem == "not done within 0.1 s"
    assert runs_of(client, directory, "sweep")[0].info.status == "KILLED"
    hold.set()
    projection._thread.join()
    assert sync(directory) == SyncResult(n_logged=3, n_present=1)
    assert runs_of(client, directory, "sweep")[0].info.status == "FINISHED"


def test_closing_in_haste_can_be_enough(client: MlflowClient, tmp_path: Path) -> None:
    """The driver raises before it has any row, and its `finally` closes the projection a second time."""
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("enough"))
    projection = Projection(directory)
    assert projection.close(60) == projection.close(60) == SyncResult(0, 0)
    assert projection.problem is None
    [parent] = runs_of(client, directory, "sweep")
    assert (parent.info.status, parent.data.metrics["n_trainings"]) == ("FINISHED", 0)


@pytest.mark.slow
def test_what_is_given_up_before_mlflow_answers_logs_nothing_after(
    client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then another process may be logging the trial."""
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("late-answer"), trial_rows(0, SOLVED))
    answers = threading.Event()
    slow = Projection._open

    def open_slowly(projection: Projection) -> Mirror:
        answers.wait()
        return slow(projection)

    monkeypatch.setattr(Projection, "_open", open_slowly)
    projection = Projection(directory)
    for _ in range(10_000):
        projection.trial_told(0)
    projection.close(0.05)
    answers.set()
    projection._thread.join()
    assert projection.problem == "not done within 0.05 s"
    assert runs_of(client, directory) == []
    assert runs_of(client, directory, "sweep")[0].info.status == "KILLED"
    assert sync(directory) == SyncResult(n_logged=1, n_present=0)
