"""A running sweep is projected to MLflow, whatever MLflow does. Real MLflow on a real database."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from queue import SimpleQueue

import pytest
from mlflow import MlflowClient

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking import process, processes
from attnsweep.orchestrator.tracking.projection import Projection
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.orchestrator.tracking.sync import Mirror, SyncResult, sync
from attnsweep.workloads.errors import UserError
from tests.orchestrator.mlflow_runs import default_store, everything_stored, runs_of
from tests.orchestrator.small_sweep import FINISHED, commit, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.present import present

SOLVED = ["solved"] * 4
FINISHED_MS = round(FINISHED.timestamp() * 1000)


@pytest.fixture(scope="module", autouse=True)
def client(tmp_path_factory: pytest.TempPathFactory, _empty_mlflow_database: Path) -> Iterator[MlflowClient]:
    with default_store(tmp_path_factory.mktemp("work"), _empty_mlflow_database) as store:
        yield store


def _wait_until(condition: Callable[[], bool], projection: Projection) -> None:
    while not condition():
        assert projection._process.status is None
        threading.Event().wait(0.01)


@pytest.mark.slow
def test_a_running_sweep_is_projected_while_its_ledger_grows(client: MlflowClient, tmp_path: Path) -> None:
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("running", trials=20), {})
    progress = []
    with open_writer(directory) as writer:
        projection = Projection(directory)
        for trial in range(20):
            commit(writer, trial_rows(trial, SOLVED))
            if trial != 13:
                projection.trial_told(trial)
        result = projection.close(on_progress=lambda *done: progress.append(done))
    assert projection.problem is None
    assert result == SyncResult(n_logged=20, n_present=0)
    assert progress == sorted(progress)
    assert not progress or progress[-1][0] == progress[-1][1]
    assert {run.info.status for run in runs_of(client, directory)} == {"FINISHED"}
    [parent] = runs_of(client, directory, "sweep")
    assert (parent.info.status, parent.data.metrics["n_trainings"]) == ("FINISHED", 80)
    assert sync(directory) == SyncResult(n_logged=0, n_present=20)


@pytest.mark.slow
def test_a_resumed_sweep_goes_on_in_its_parent_run(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("resumed"), trial_rows(0, SOLVED))
    sync(directory)
    with open_writer(directory) as writer:
        projection = Projection(directory)
        _wait_until(lambda: runs_of(client, directory, "sweep")[0].info.status == "RUNNING", projection)
        commit(writer, trial_rows(1, SOLVED))
        # The first was logged before the study was told.
        for trial in range(2):
            projection.trial_told(trial)
        _wait_until(lambda: projection.lag == "", projection)
        assert projection.close() == SyncResult(n_logged=1, n_present=1)
    [parent] = runs_of(client, directory, "sweep")
    assert (parent.info.status, parent.info.end_time) == ("FINISHED", FINISHED_MS + 1000)


@pytest.mark.scale
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
        for trial in range(10_000):
            projection.trial_told(trial)
        assert projection.close() == SyncResult(0, 0)
    problem = present(projection.problem)
    assert problem.endswith("(ConnectionRefusedError: [Errno 111] Connection refused)")
    assert "\n" not in problem
    assert projection.lag == f"10,000 trials behind: {problem}"
    [warning] = [record.getMessage() for record in caplog.records if record.name.startswith("attnsweep")]
    assert f"MLflow ({shown}): MlflowException: " in warning
    assert "secret" not in warning
    assert warning.endswith(f"; the sweep goes on, `attnsweep mlflow-sync {directory.place}` logs what is missing")
    with pytest.raises(UserError, match=f"--tracking-uri: got '{shown}', expected an MLflow store that answers"):
        sync(directory, with_password)
    assert sync(directory) == SyncResult(n_logged=2, n_present=0)


@pytest.mark.scale
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
        _wait_until(lambda: projection.lag == "", projection)
        _wait_until(lambda: [run.info.status for run in runs_of(client, directory)] == ["FINISHED"] * 3, projection)
        assert projection.problem is None
        assert projection.lag == ""
        assert projection.close() == SyncResult(n_logged=3, n_present=0)


@pytest.mark.scale
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
def test_closing_in_haste_says_that_the_sweep_was_interrupted_before_it_logs_more(
    client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("haste"), trial_rows(0, SOLVED))
    statuses = []
    log = Mirror.log

    def look(mirror: Mirror, trials: Sequence[int]) -> Iterator[list[int]]:
        statuses.append(runs_of(client, directory, "sweep")[0].info.status)
        return log(mirror, trials)

    monkeypatch.setattr(Mirror, "log", look)
    projector = process._Projector(process.Start(str(directory.place), tracking_uri(), 0.0), StringIO())
    projector._in_haste = True
    projector._drain(projector._open())
    assert statuses == ["KILLED"]
    assert runs_of(client, directory, "sweep")[0].info.status == "FINISHED"


@pytest.mark.slow
def test_closing_in_haste_can_be_enough(client: MlflowClient, tmp_path: Path) -> None:
    """The driver raises before it has any row, and its `finally` closes the projection a second time."""
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("enough"))
    projection = Projection(directory)
    assert projection.close(60) == projection.close(60) == SyncResult(0, 0)
    assert projection.problem is None
    [parent] = runs_of(client, directory, "sweep")
    assert (parent.info.status, parent.data.metrics["n_trainings"]) == ("FINISHED", 0)


@pytest.fixture
def silent_store() -> Iterator[str]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.scale
@pytest.mark.slow
def test_what_is_given_up_logs_nothing_after(silent_store: str, tmp_path: Path) -> None:
    """By then another process may log it."""
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("late-answer"), trial_rows(0, SOLVED))
    projection = Projection(directory, silent_store)
    for _ in range(10_000):
        projection.trial_told(0)
    projection.close(0.05)
    assert projection.problem == "not done within 0.05 s"
    assert projection._process.status is not None
    assert sync(directory) == SyncResult(n_logged=1, n_present=0)


_DRIVER = """
import sys, time
from pathlib import Path
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.projection import Projection
projection = Projection(SweepDirectory.open(Path(sys.argv[1])), sys.argv[2])
print(projection._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.sample("9")
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_driver_leaves_no_process_behind(number: signal.Signals, silent_store: str, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("orphan"), trial_rows(0, SOLVED))
    command = [sys.executable, "-c", _DRIVER, str(directory.place), silent_store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        driver.send_signal(number)
        driver.wait()
        deadline = time.monotonic() + 60
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)


@pytest.mark.parametrize("answer", ['{"n_logged": 1, "of_a_later_version": 2}', '{"n_log'])
def test_an_answer_that_is_not_understood_ends_the_process_and_not_the_sweep(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is started from the code on disk, which may have changed since the driver was."""
    monkeypatch.setattr(processes, "_PROGRAM", f"import sys; print({answer!r}, flush=True); sys.stdin.read()")
    monkeypatch.setattr(processes, "_idle", [])
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("other-code"), trial_rows(0, SOLVED))
    projection = Projection(directory)
    assert projection.close(60) == SyncResult(0, 0)
    assert projection.problem == "its process gave an answer that is not understood, and ended with status -9"
    assert projection._process.status == -signal.SIGKILL


def test_a_request_that_is_not_understood_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver waits for an answer; its own code is older than that on disk."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with pytest.raises(TypeError, match="of_an_earlier_version"):
        process._listen(StringIO('{"report_of": "s", "of_an_earlier_version": 1}\n'), StringIO(), SimpleQueue())
    process._listen(StringIO(""), StringIO(), SimpleQueue())
    assert ended == [1, 0]


@pytest.mark.scale
@pytest.mark.slow
def test_the_process_loads_neither_torch_nor_ray(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("light", space={"n_steps": 8}), trial_rows(0, SOLVED))
    loaded = (
        "import io, json, sys; from dataclasses import asdict; from attnsweep.orchestrator.tracking import process;"
        f"start = process.Start({str(directory.place)!r}, {tracking_uri()!r}, 0.0);"
        "projector = process._Projector(start, io.StringIO()); projector._closing.set(); projector.run();"
        "problem = projector._problem or process.DrawReport(start.directory, start.uri, keep=False).problem();"
        "assert problem is None, problem; assert 'matplotlib' in sys.modules;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'ray'}))"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.scale
@pytest.mark.slow
def test_the_next_sweep_of_a_driver_takes_the_process_that_has_ended_the_last(
    client: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless environment variables have changed since, which MLflow reads."""
    pids = []
    out_of_reach = "sqlite:////dev/null/mlflow.db"
    for name, uri, problem in (
        ("first", None, ""),
        ("second", None, ""),
        ("changed", out_of_reach, "FileExistsError: [Errno 17] File exists: '/dev/null'"),
        ("lost", out_of_reach, "its process ended with status -9"),
        ("after", out_of_reach, "FileExistsError: [Errno 17] File exists: '/dev/null'"),
    ):
        if name == "changed":
            monkeypatch.setenv("MLFLOW_TRACKING_URI", out_of_reach)
        directory = sweep_on_disk(tmp_path / name, small_sweep(name), trial_rows(0, SOLVED))
        projection = Projection(directory, uri)
        projection.trial_told(0)
        pids.append(projection._process.pid)
        if name == "lost":
            projection._process.kill()
        assert projection.close() == SyncResult(n_logged=int(not problem), n_present=0)
        assert (projection.problem or "") == problem
        if name in ("second", "changed"):
            # What cannot be reached is not worth the seconds that MLflow takes to import.
            assert ("sqlalchemy" in Path(f"/proc/{pids[-1]}/maps").read_text()) is (not problem)
        assert len(runs_of(client, directory)) == int(not problem)
    first, second, changed, lost, after = pids
    assert first == second != changed == lost != after
    assert all(process.status is None for process in processes._idle)
    processes.end_idle_processes()
    assert not processes._idle
    assert not Path(f"/proc/{after}").exists()
