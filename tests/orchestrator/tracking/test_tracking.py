"""MLflow has each trial of the ledger exactly once, whatever fails in between. Real MLflow on a real database."""

import csv
import math
import socket
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from attnsweep.orchestrator.storage.run_records import PROGRESS, Beacon, Progress
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking import following
from attnsweep.orchestrator.tracking.content import MAX_RUNS
from attnsweep.orchestrator.tracking.following import Following
from attnsweep.orchestrator.tracking.store import database_of, open_client, tracking_uri
from attnsweep.orchestrator.tracking.sync import SyncResult, sync
from attnsweep.workloads.errors import UserError
from tests.fault.servers import wait_until
from tests.orchestrator.mlflow_runs import everything_stored, runs_of
from tests.orchestrator.small_sweep import FINISHED, STEPS, commit, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.refusals import refused

pytestmark = [pytest.mark.usefixtures("client"), pytest.mark.slow]

SOLVED = ["solved"] * 4
FINISHED_MS = round(FINISHED.timestamp() * 1000)


def parent_of(client: MlflowClient, directory: SweepDirectory) -> Run:
    [parent] = runs_of(client, directory, "sweep")
    return parent


def statuses(client: MlflowClient, directory: SweepDirectory) -> list[str]:
    return [run.info.status for run in runs_of(client, directory)]


def silent_for(directory: SweepDirectory, length: timedelta, doing: str = "training") -> None:
    progress = Progress(at=datetime.now(UTC) - length, doing=doing, n_asked=1, packs=())
    PROGRESS.write(directory.place, progress)


def test_a_trial_is_a_child_run_of_its_sweeps(
    client: MlflowClient, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = trial_rows(7, ["solved", "runaway", "diverged", "failed"], param_init_sigma=0.03, param_learning_rate=1e-2)
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("child", description="why"), rows)
    assert sync(directory) == SyncResult(n_logged=1, n_present=0)
    assert capfd.readouterr().out == ""

    [run], parent = runs_of(client, directory), parent_of(client, directory)
    assert run.info.run_name == "#7 init_sigma=0.03 learning_rate=0.01"
    assert run.info.status == "FINISHED"
    assert (run.info.start_time, run.info.end_time) == (FINISHED_MS + 6000, FINISHED_MS + 7000)
    expected = {
        "mlflow.parentRunId": parent.info.run_id,
        "attnsweep.trial_key": f"{directory.sweep}/7",
        "attnsweep.variant": "positions_only",
    }
    assert expected.items() <= run.data.tags.items()
    assert {"init_sigma": "0.03", "n_categories": "10", "stop_when_solved": "true"}.items() <= run.data.params.items()
    assert len(run.data.params) == len([name for name in rows[0] if name.startswith("param_")])
    metrics = run.data.metrics
    assert metrics["stuck_rate"] == metrics["solved_rate"] == metrics["diverged_rate"] == pytest.approx(1 / 3)
    assert 0 < metrics["stuck_rate_low"] < 1 / 3 < metrics["stuck_rate_high"] < 1
    assert (metrics["n_trainings"], metrics["train_seconds"], metrics["loss_median"]) == (4, 1.0, 1.5)

    assert (parent.info.run_name, parent.info.end_time) == (directory.sweep, FINISHED_MS + 7000)
    assert {"attnsweep.workload": "category_pairs", "attnsweep.sampler": "tpe"}.items() <= parent.data.tags.items()
    assert parent.data.params == {"n_steps": "8", "sweep.seed": "0"}
    assert (parent.data.metrics["n_trainings"], parent.data.metrics["loss_median"]) == (4, 1.5)
    note = parent.data.tags["mlflow.note.content"]
    assert note.startswith("why\n")
    assert "| solved | 1 |" in note
    assert {file.path for file in client.list_artifacts(parent.info.run_id)} == {
        *("sweep.json", "summary.md", "summary.json")
    }
    assert "sweeps/mlflow-artifacts/category_pairs" in parent.info.artifact_uri


def test_a_sweep_of_very_many_trials_is_one_run_with_a_table(client: MlflowClient, tmp_path: Path) -> None:
    spec = small_sweep("many", trials=MAX_RUNS + 1)
    rows = [trial_rows(0, SOLVED, param_init_sigma=0.5), trial_rows(3, ["runaway"] * 4, param_init_sigma=0.25)]
    directory = sweep_on_disk(tmp_path / "sweep", spec, *rows)
    assert sync(directory) == SyncResult(n_logged=0, n_present=0)
    assert runs_of(client, directory) == []
    table = client.download_artifacts(parent_of(client, directory).info.run_id, "trials.csv", str(tmp_path))
    with Path(table).open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["trial"], float(row["param_init_sigma"]), float(row["stuck_rate"])) for row in found] == [
        ("0", 0.5, 0.0),
        ("3", 0.25, 1.0),
    ]
    assert "param_n_steps" not in found[0]


def test_twice_is_once_and_a_report_is_added(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("twice"), *(trial_rows(t, SOLVED) for t in range(3)))
    sync(directory)
    before = everything_stored()
    assert sync(directory) == SyncResult(n_logged=0, n_present=3)
    assert everything_stored() == before
    page = directory.place / "report" / "report.html"
    page.parent.mkdir()
    page.write_text("a page")
    sync(directory)
    found = client.download_artifacts(parent_of(client, directory).info.run_id, "report/report.html")
    assert Path(found).read_text() == "a page"


def test_a_trial_is_logged_when_it_is_complete(client: MlflowClient, tmp_path: Path) -> None:
    early, late = trial_rows(1, SOLVED)[:3], trial_rows(1, SOLVED)[3:]
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("late"), trial_rows(0, SOLVED), early)
    assert sync(directory) == SyncResult(n_logged=1, n_present=0)
    with open_writer(directory) as writer:
        commit(writer, [{**row, "sweep": directory.sweep, "pack": "late"} for row in late])
    assert sync(directory) == SyncResult(n_logged=1, n_present=1)
    assert parent_of(client, directory).data.metrics["n_trainings"] == 8


def test_progress_counts_the_trials_of_all_rounds(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("rounds"), trial_rows(0, SOLVED))
    counts: list[tuple[int, int]] = []

    def on_progress(n_logged: int, n_due: int) -> None:
        counts.append((n_logged, n_due))
        if n_logged == 1:
            with open_writer(directory) as writer:
                commit(writer, trial_rows(1, SOLVED))
            silent_for(directory, timedelta(0), doing="")

    silent_for(directory, timedelta(0))
    sync(directory, on_progress=on_progress, follow=True)
    assert counts == [(1, 1), (2, 2)]


def test_what_a_crash_or_a_repeated_request_left_is_completed_or_deleted(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("half"), trial_rows(0, SOLVED), trial_rows(1, SOLVED))
    sync(directory)
    whole, parent = runs_of(client, directory), parent_of(client, directory)
    # Made and not filled; filled and not ended; and a server that executes both a request and its repetition.
    client.delete_run(whole[0].info.run_id)
    half = client.create_run(whole[0].info.experiment_id, tags=whole[0].data.tags, run_name=whole[0].info.run_name)
    client.update_run(whole[1].info.run_id, status="RUNNING")
    for run in (parent, whole[1]):
        client.create_run(run.info.experiment_id, start_time=2**50, tags=run.data.tags)
    assert sync(directory) == SyncResult(n_logged=2, n_present=0)
    with open_writer(directory) as writer:
        commit(writer, trial_rows(2, SOLVED))
    sync(directory)
    repaired = runs_of(client, directory)[:2]
    assert repaired[0].info.run_id == half.info.run_id
    assert statuses(client, directory) == ["FINISHED"] * 3
    assert parent_of(client, directory).info.run_id == parent.info.run_id
    assert [run.data.metrics for run in repaired] == [run.data.metrics for run in whole]
    assert [run.data.params for run in repaired] == [run.data.params for run in whole]
    for run in repaired:
        assert len(client.get_metric_history(run.info.run_id, "loss_curve")) == len(STEPS)
        assert len(client.get_metric_history(run.info.run_id, "stuck_rate")) == 1


def test_what_is_not_finite_is_not_sent(client: MlflowClient, tmp_path: Path) -> None:
    """MLflow would store an infinite value as the largest double, and plot it."""
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("finite", replicates=2), {})
    with open_writer(directory) as writer:
        commit(writer, trial_rows(0, ["diverged"] * 2), {0: [9.0, math.inf], 1: [9.0, 9.0, math.inf]})
        commit(writer, trial_rows(1, ["failed"] * 2))
    sync(directory)
    diverged, failed = runs_of(client, directory)
    assert diverged.data.metrics["diverged_rate"] == 1
    assert "loss_median" not in diverged.data.metrics
    assert set(failed.data.metrics) == {"n_trainings", "train_seconds"}
    median = client.get_metric_history(diverged.info.run_id, "loss_curve")
    assert [(each.step, each.value) for each in median] == [(0, 9.0)]


def test_a_sweep_is_followed_until_its_run_ends_whatever_its_store_does(tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("followed"), trial_rows(0, SOLVED))
    store = tmp_path / "store"
    # A file in the place of the folder of its database.
    store.touch()
    uri, beacon = f"sqlite:///{store / 'mlflow.db'}", Beacon(directory.place, directory.progress)
    with ThreadPoolExecutor(1) as threads, open_writer(directory) as writer:
        beacon.show("training", 2, ())
        done = threads.submit(sync, directory, uri, follow=True)
        wait_until(lambda: (directory.place / ".mlflow.lock").exists(), "the first attempt")
        store.unlink()
        wait_until(lambda: (store / "mlflow.db").exists(), "the second attempt")
        client = MlflowClient(uri)
        wait_until(lambda: client.get_experiment_by_name("category_pairs") is not None, "the experiment")
        wait_until(lambda: statuses(client, directory) == ["FINISHED"], "the first trial")
        assert parent_of(client, directory).info.status == "RUNNING"
        with pytest.raises(UserError, match=r"a sweep that another process works on \(mlflow-sync, pid "):
            sync(directory, uri)
        commit(writer, trial_rows(1, SOLVED))
        wait_until(lambda: statuses(client, directory) == ["FINISHED"] * 2, "the second trial")
        commit(writer, trial_rows(2, SOLVED))
        directory.record_run(finished=True, seconds=1.0)
        # The run may wait for it before it lets go of the ledger.
        assert done.result() == SyncResult(n_logged=3, n_present=0)
    assert parent_of(client, directory).info.status == "FINISHED"


def test_a_run_that_was_killed_is_marked_and_goes_on_when_the_sweep_does(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("killed"), trial_rows(0, SOLVED))
    for length, status in ((0, "RUNNING"), (3, "KILLED"), (0, "RUNNING")):
        silent_for(directory, timedelta(minutes=length))
        sync(directory)
        assert parent_of(client, directory).info.status == status
    silent_for(directory, timedelta(minutes=3))
    with open_writer(directory):
        sync(directory)
        assert parent_of(client, directory).info.status == "RUNNING"
    directory.record_run(finished=True, seconds=1.0)
    sync(directory)
    assert parent_of(client, directory).info.status == "FINISHED"


def test_the_process_of_a_run_may_die(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("process"), trial_rows(0, SOLVED))
    silent_for(directory, timedelta(0))
    mlflow = Following(directory)
    wait_until(lambda: statuses(client, directory) == ["FINISHED"], "the first trial")
    assert mlflow._process is not None
    mlflow._process.kill()
    with open_writer(directory) as writer:
        commit(writer, trial_rows(1, SOLVED))
    mlflow.close(None)
    assert mlflow.in_words().endswith(f"once it answers: attnsweep mlflow-sync {directory.place}")
    silent_for(directory, timedelta(0), doing="")
    mlflow = Following(directory)
    mlflow.close(None)
    assert mlflow.in_words() == f"mlflow ui --backend-store-uri {tracking_uri()}"
    assert statuses(client, directory) == ["FINISHED"] * 2


def test_the_end_of_a_run_waits_for_no_store_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("vain"), trial_rows(0, SOLVED))
    monkeypatch.setattr(following, "_PATIENCE_SECONDS", 0.5)
    silent_for(directory, timedelta(0))
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.getsockname()[1]}")
        for seconds in (None, 0.1):
            mlflow = Following(directory)
            process = mlflow._process
            mlflow.close(seconds)
            assert mlflow.problem == f"not done within {seconds or 0.5} s"
            assert process is not None
            assert process.poll() is not None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{directory.place}/sweep.json/mlflow.db")
    mlflow = Following(directory)
    assert mlflow._process is None
    assert "sweep.json" in mlflow.in_words()


def test_the_default_database_may_be_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "100%20 'x' #1?"
    odd.mkdir()
    monkeypatch.chdir(odd)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    open_client(tracking_uri()).create_experiment("mine")
    assert database_of(tracking_uri()) == odd / "sweeps" / "mlflow.db"
    with closing(sqlite3.connect(odd / "sweeps" / "mlflow.db")) as connection:
        assert connection.execute("select name from experiments where name = 'mine'").fetchall() == [("mine",)]
        # It is read while it is written.
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)


def test_a_store_that_fails_is_named_without_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("freed"), trial_rows(0, SOLVED))
    # By default MLflow would try ten times, for 100 s.
    monkeypatch.setattr("mlflow.store.db.utils.MAX_RETRY_COUNT", 1)
    databases = "postgresql+psycopg2://me:secret@127.0.0.1:1/mlflow", f"sqlite:///{directory.place}/sweep.json/x"
    for database in (*databases, "nowhere://"):
        with refused("--tracking-uri", UserError) as refusal:
            sync(directory, database)
        assert "secret" not in str(refusal.value)
