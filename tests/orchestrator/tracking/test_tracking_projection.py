"""A running sweep is projected to MLflow, whatever MLflow does. Real MLflow on a real database."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from attnsweep.orchestrator.storage.run_records import Beacon
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking import processes
from attnsweep.orchestrator.tracking.follow import Follower, Mirror, SyncResult, sync
from attnsweep.orchestrator.tracking.mlflow_store import MlflowStore
from attnsweep.orchestrator.tracking.projection import Projection
from attnsweep.orchestrator.tracking.store import tracking_uri
from attnsweep.workloads.errors import UserError
from tests.fault.servers import wait_until
from tests.orchestrator.mlflow_runs import runs_of
from tests.orchestrator.small_sweep import FINISHED, commit, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.present import present

pytestmark = pytest.mark.usefixtures("client")

SOLVED = ["solved"] * 4
FINISHED_MS = round(FINISHED.timestamp() * 1000)


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
def test_mlflow_that_comes_back_gets_what_it_missed(tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("back"), trial_rows(0, SOLVED))
    store = tmp_path / "store"
    # A file in the place of the folder of its database.
    store.touch()
    uri = f"sqlite:///{store / 'mlflow.db'}"
    with open_writer(directory) as writer:
        projection = Projection(directory, uri, retry_seconds=0.05)
        projection.trial_told(0)
        _wait_until(lambda: projection.problem is not None, projection)
        assert projection.lag == f"1 trial behind: {projection.problem}"
        store.unlink()
        commit(writer, trial_rows(1, SOLVED))
        projection.trial_told(1)
        _wait_until(lambda: projection.lag == "", projection)
        assert projection.problem is None
        statuses = [run.info.status for run in runs_of(MlflowClient(uri), directory)]
        assert statuses == ["FINISHED"] * 2
        assert projection.close() == SyncResult(n_logged=2, n_present=0)


def _statuses(client: MlflowClient, directory: SweepDirectory, kind: str = "trial") -> list[str]:
    is_there = client.get_experiment_by_name("category_pairs") is not None
    return [run.info.status for run in runs_of(client, directory, kind)] if is_there else []


@pytest.mark.slow
def test_a_sweep_that_another_process_runs_is_followed_until_it_ends(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("elsewhere"), trial_rows(0, SOLVED))
    beacon = Beacon(directory.place, directory.progress)
    with ThreadPoolExecutor(1) as threads:
        with open_writer(directory) as writer:
            beacon.show("training", 2, ())
            following = threads.submit(sync, directory, follow=True)
            wait_until(lambda: _statuses(client, directory) == ["FINISHED"], "the first trial")
            assert _statuses(client, directory, "sweep") == ["RUNNING"]
            with pytest.raises(UserError, match=r"a sweep that another process works on \(mlflow-sync, pid "):
                sync(directory, follow=True)
            commit(writer, trial_rows(1, SOLVED))
            wait_until(lambda: _statuses(client, directory) == ["FINISHED"] * 2, "the second trial")
            # It ends for others when its driver lets go of it, which may have rows to write until then.
            directory.record_run(finished=False, seconds=1.0)
            commit(writer, trial_rows(2, SOLVED))
            wait_until(lambda: _statuses(client, directory) == ["FINISHED"] * 3, "the third trial")
            assert not following.done()
        assert following.result() == SyncResult(n_logged=3, n_present=0)
    assert _statuses(client, directory, "sweep") == ["FINISHED"]


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_the_rest_to_the_next(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("killed"), trial_rows(0, SOLVED))
    with open_writer(directory) as writer:
        projection = Projection(directory)
        projection.trial_told(0)
        _wait_until(lambda: projection.lag == "", projection)
        projection._process.kill()
        commit(writer, trial_rows(1, SOLVED))
        projection.trial_told(1)
        assert projection.close() == SyncResult(n_logged=1, n_present=0)
        assert "1 trial behind" in present(projection.lag)
        assert "1 of 2 trials" in present(projection.shortfall())
    assert sync(directory) == SyncResult(n_logged=1, n_present=1)
    assert _statuses(client, directory) + _statuses(client, directory, "sweep") == ["FINISHED"] * 3


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
    with closing(Follower(directory.place, MlflowStore(tracking_uri()), lambda _: None)) as follower:
        follower.end(in_haste=True)
    assert statuses == ["KILLED"]
    assert runs_of(client, directory, "sweep")[0].info.status == "FINISHED"


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
    assert projection.problem is not None
    assert projection._process.status == -signal.SIGKILL
