"""MLflow has each trial of the ledger exactly once, whatever fails in between. Real MLflow on a real database."""

import csv
import math
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric

from attnsweep.orchestrator.storage.run_records import PROGRESS, Progress
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking import runs
from attnsweep.orchestrator.tracking.content import MOST_RUNS
from attnsweep.orchestrator.tracking.follow import Follower, Mirror, SyncResult, mark_killed, sync
from attnsweep.orchestrator.tracking.mlflow_store import MlflowStore
from attnsweep.orchestrator.tracking.projection import Projection
from attnsweep.orchestrator.tracking.store import database_of, open_client, tracking_uri
from attnsweep.workloads.errors import UserError
from tests.orchestrator.mlflow_runs import everything_stored, runs_of
from tests.orchestrator.small_sweep import FINISHED, STEPS, commit, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("client")

SOLVED = ["solved"] * 4
FINISHED_MS = round(FINISHED.timestamp() * 1000)


@pytest.mark.slow
def test_a_trial_becomes_a_child_run(client: MlflowClient, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = trial_rows(7, ["solved", "runaway", "diverged", "failed"], param_init_sigma=0.03, param_learning_rate=1e-2)
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("child"), rows)
    assert sync(directory) == SyncResult(n_logged=1, n_present=0)
    assert capfd.readouterr().out == ""

    [run] = runs_of(client, directory)
    [parent] = runs_of(client, directory, "sweep")
    assert run.info.run_name == "#7 sigma=0.03 lr=1e-2"
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


@pytest.mark.slow
def test_the_sweep_is_the_parent_run(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("parent", description="why"), trial_rows(0, SOLVED))
    sync(directory)
    [parent] = runs_of(client, directory, "sweep")
    assert (parent.info.run_name, parent.info.status) == (directory.sweep, "FINISHED")
    assert parent.info.end_time == FINISHED_MS
    expected_tags = {"attnsweep.workload": "category_pairs", "attnsweep.sampler": "tpe"}
    assert expected_tags.items() <= parent.data.tags.items()
    assert parent.data.tags["attnsweep.spec_sha256"] == directory.spec.sha256()
    expected_params = {"n_steps": "8", "sweep.trials": "4", "sweep.replicates": "4", "sweep.seed": "0"}
    assert parent.data.params == expected_params
    assert parent.data.metrics["n_trainings"] == 4
    assert [parent.data.metrics[name] for name in ("stuck_rate", "solved_rate", "loss_median")] == [0.0, 1.0, 2.0]
    note = parent.data.tags["mlflow.note.content"]
    assert note.startswith("why\n")
    assert "| solved | 4 |" in note
    artifacts = {file.path for file in client.list_artifacts(parent.info.run_id)}
    assert artifacts == {"sweep.json", "summary.md", "summary.json"}
    assert "sweeps/mlflow-artifacts/category_pairs" in parent.info.artifact_uri


@pytest.mark.slow
def test_the_run_of_a_sweep_whose_driver_was_killed_is_marked_once(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("killed"), trial_rows(0, SOLVED))
    with closing(Follower(directory.place, MlflowStore(tracking_uri()), lambda _: None)) as follower:
        follower.look()

    def status() -> str:
        [parent] = runs_of(client, directory, "sweep")
        return str(parent.info.status)

    def silent_for(length: timedelta) -> None:
        progress = Progress(at=datetime.now(UTC) - length, doing="training", n_asked=1, packs=())
        PROGRESS.write_passing(directory.place, progress)

    said: list[str] = []
    silent_for(timedelta(0))
    mark_killed(directory, said.append)
    assert (status(), said) == ("RUNNING", [])
    silent_for(timedelta(minutes=3))
    with closing(directory.place.lock("run")):
        mark_killed(directory, lambda _: None)
        assert status() == "RUNNING"
    for _ in range(2):
        mark_killed(directory, said.append)
        assert (status(), len(said)) == ("KILLED", 1)
    sync(directory)
    assert status() == "FINISHED"


def test_a_sweep_of_very_many_trials_is_one_run_with_a_table(client: MlflowClient, tmp_path: Path) -> None:
    spec = small_sweep("many", trials=MOST_RUNS + 1)
    rows = [trial_rows(0, SOLVED, param_init_sigma=0.5), trial_rows(3, ["runaway"] * 4, param_init_sigma=0.25)]
    directory = sweep_on_disk(tmp_path / "sweep", spec, *rows)
    assert sync(directory) == SyncResult(n_logged=0, n_present=0)
    assert runs_of(client, directory) == []
    [parent] = runs_of(client, directory, "sweep")
    assert "more than 10,000 have no runs" in parent.data.tags["mlflow.note.content"]
    table = client.download_artifacts(parent.info.run_id, "trials.csv", str(tmp_path))
    with Path(table).open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["trial"], row["init_sigma"], float(row["stuck_rate"])) for row in found] == [
        ("0", "0.5", 0.0),
        ("3", "0.25", 1.0),
    ]
    assert "n_steps" not in found[0]
    projection = Projection(directory)
    projection.trial_told(3)
    assert projection.lag == ""
    projection.close()
    assert "trials.csv" in projection.to_open()


@pytest.mark.slow
def test_twice_is_once(tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("twice"), *(trial_rows(t, SOLVED) for t in range(3)))
    sync(directory)
    before = everything_stored()
    assert sync(directory) == SyncResult(n_logged=0, n_present=3)
    assert everything_stored() == before


@pytest.mark.slow
def test_a_trial_is_logged_when_it_is_complete(client: MlflowClient, tmp_path: Path) -> None:
    early, late = trial_rows(1, SOLVED)[:3], trial_rows(1, SOLVED)[3:]
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("late"), trial_rows(0, SOLVED), early)
    assert sync(directory) == SyncResult(n_logged=1, n_present=0)
    with open_writer(directory) as writer:
        commit(writer, [{**row, "sweep": directory.sweep, "pack": "late"} for row in late])
    assert sync(directory) == SyncResult(n_logged=1, n_present=1)
    [parent] = runs_of(client, directory, "sweep")
    assert parent.data.metrics["n_trainings"] == 8
    assert "| solved | 8 |" in parent.data.tags["mlflow.note.content"]


@pytest.mark.slow
def test_a_half_written_child_is_completed(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("half"), trial_rows(0, SOLVED), trial_rows(1, SOLVED))
    sync(directory)
    whole = runs_of(client, directory)
    # The states that a crash leaves: created but not filled, and filled but not ended.
    client.delete_run(whole[0].info.run_id)
    tags = whole[0].data.tags
    half = client.create_run(whole[0].info.experiment_id, tags=tags, run_name=whole[0].info.run_name)
    client.log_batch(half.info.run_id, metrics=[Metric("stuck_rate", 0.0, FINISHED_MS, 0)])
    client.update_run(whole[1].info.run_id, status="RUNNING")

    assert sync(directory) == SyncResult(n_logged=2, n_present=0)
    repaired = runs_of(client, directory)
    assert [run.info.run_id for run in repaired] == [half.info.run_id, whole[1].info.run_id]
    assert [run.info.status for run in repaired] == ["FINISHED", "FINISHED"]
    assert [run.data.metrics for run in repaired] == [run.data.metrics for run in whole]
    assert [run.data.params for run in repaired] == [run.data.params for run in whole]
    for run in repaired:
        assert len(client.get_metric_history(run.info.run_id, "loss_curve/median")) == len(STEPS)
        assert len(client.get_metric_history(run.info.run_id, "stuck_rate")) == 1


@pytest.mark.slow
def test_a_repeated_request_leaves_no_second_run(client: MlflowClient, tmp_path: Path) -> None:
    """Simulates a server that executes both a request that timed out and its repetition."""
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("repeated"), trial_rows(0, SOLVED), trial_rows(1, SOLVED))
    sync(directory)
    [parent], children = runs_of(client, directory, "sweep"), runs_of(client, directory)
    client.update_run(children[0].info.run_id, status="RUNNING")
    for run in (parent, parent, children[0], children[1]):
        client.create_run(run.info.experiment_id, start_time=2**50, tags=run.data.tags)
    sync(directory)
    assert [run.info.run_id for run in runs_of(client, directory, "sweep")] == [parent.info.run_id]
    assert [run.data.params for run in runs_of(client, directory)] == [run.data.params for run in children]
    assert {run.info.status for run in runs_of(client, directory)} == {"FINISHED"}


@pytest.mark.slow
def test_a_parent_that_was_made_and_not_filled_is_filled(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("unfilled"), trial_rows(0, SOLVED))
    sync(directory)
    [whole] = runs_of(client, directory, "sweep")
    client.delete_run(whole.info.run_id)
    client.create_run(whole.info.experiment_id, tags=whole.data.tags)
    sync(directory)
    [parent] = runs_of(client, directory, "sweep")
    assert parent.data.params == whole.data.params != {}


def test_logging_that_breaks_off_logs_no_trial_twice(client: MlflowClient, tmp_path: Path) -> None:
    """As that of a running sweep does when the sweep ends: what is missing is logged at once then."""
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("brief"), *(trial_rows(t, SOLVED) for t in range(4)))
    mirror = Mirror(directory, MlflowStore(tracking_uri()))
    next(mirror.log([0, 1, 2, 3]))
    for _ in mirror.log(mirror.missing()):
        pass
    assert sorted(runs.trial_of(run) for run in runs_of(client, directory)) == [0, 1, 2, 3]


@pytest.mark.slow
def test_curves_keep_what_ended_early_and_rank_what_overflowed_above_all(client: MlflowClient, tmp_path: Path) -> None:
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("curves", replicates=3), {})
    with open_writer(directory) as writer:
        rows = trial_rows(0, ["solved", "plateau", "diverged"])
        commit(writer, rows, {0: [8.0, 4.0, 0.0], 1: [9.0, 8.0, 7.0, 6.0, 5.0], 2: [10.0, 20.0]})
    sync(directory)
    [run] = runs_of(client, directory)

    def curve(name: str) -> dict[int, float]:
        return {each.step: each.value for each in client.get_metric_history(run.info.run_id, f"loss_curve/{name}")}

    assert curve("median") == {0: 9.0, 1: 8.0, 2: 7.0, 4: 6.0, 8: 5.0}
    assert curve("q25") == {0: 8.5, 1: 6.0, 2: 3.5, 4: 3.0, 8: 2.5}
    assert curve("q75") == {0: 9.5, 1: 14.0}


@pytest.mark.slow
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
    median = client.get_metric_history(diverged.info.run_id, "loss_curve/median")
    assert [(each.step, each.value) for each in median] == [(0, 9.0)]


@pytest.mark.slow
def test_the_default_database_may_be_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "100%20 'x' #1?"
    odd.mkdir()
    monkeypatch.chdir(odd)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    open_client(tracking_uri()).create_experiment("mine")
    assert database_of(tracking_uri()) == odd / "sweeps" / "mlflow.db"
    connection = sqlite3.connect(odd / "sweeps" / "mlflow.db")
    assert connection.execute("select name from experiments where name = 'mine'").fetchall() == [("mine",)]
    # It is read while it is written.
    assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_store_that_fails_leaves_the_sweep_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("freed"), trial_rows(0, SOLVED))
    # By default MLflow would try ten times, for 100 s.
    monkeypatch.setattr("mlflow.store.db.utils.MAX_RETRY_COUNT", 1)
    for database in ("postgresql+psycopg2://me:secret@127.0.0.1:1/mlflow", f"sqlite:///{directory.place}/sweep.json/x"):
        with refused("--tracking-uri", UserError) as refusal:
            sync(directory, database)
        assert "secret" not in str(refusal.value)
    with refused("--tracking-uri", UserError):
        sync(directory, "nowhere://")
    open_writer(directory).close()
