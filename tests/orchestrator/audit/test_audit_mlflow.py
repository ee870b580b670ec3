"""An MLflow whose runs differ from the ledger's trials, or that cannot be reached."""

import shutil
import socket
import sqlite3
from pathlib import Path

import pytest
from mlflow import MlflowClient

from attnsweep.orchestrator.audit.audit import audit
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.follow import sync
from attnsweep.search_spaces.loading import load_sweep
from tests.orchestrator.audit.damages import problems_of
from tests.orchestrator.trained_sweep import trained_sweep
from tests.present import present


def _client(uri: str) -> tuple[MlflowClient, str]:
    client = MlflowClient(uri)
    return client, present(client.get_experiment_by_name("Fragile")).experiment_id


def _run_id(uri: str, condition: str) -> str:
    client, experiment = _client(uri)
    [run] = client.search_runs([experiment], condition)
    return str(run.info.run_id)


@pytest.mark.scale
@pytest.mark.slow
def test_runs_that_mlflow_lacks_or_has_too_many(whole: SweepDirectory, uri: str) -> None:
    client, experiment = _client(uri)

    def of(trial: int) -> str:
        return f"tags.`attnsweep.trial_key` = '{whole.sweep}/{trial}'"

    parent = _run_id(uri, "tags.`attnsweep.kind` = 'sweep'")
    client.delete_run(_run_id(uri, of(2)))
    client.update_run(_run_id(uri, of(3)), status="RUNNING")
    client.set_tag(parent, "attnsweep.n_trainings", "26")
    first = client.get_run(_run_id(uri, of(0)))
    again = client.create_run(experiment, tags=first.data.tags).info.run_id
    stranger = client.create_run(
        experiment, tags=first.data.tags | {"attnsweep.trial_key": f"{whole.sweep}/77"}
    ).info.run_id
    found = audit(whole.place, uri)
    assert found.trials["logged"] == 7
    named = (f"{parent} (26, not 27)", "2, 3", again, f"77 ({stranger})")
    for problem, name in zip(problems_of(found), named, strict=True):
        assert name in problem
    client.create_run(experiment, tags=client.get_run(parent).data.tags)
    assert len(problems_of(audit(whole.place, uri))) == 5
    for run in (again, stranger):
        client.delete_run(run)


@pytest.mark.scale
@pytest.mark.slow
def test_runs_that_have_other_values(whole: SweepDirectory, uri: str) -> None:
    client, _ = _client(uri)
    metric, param = (_run_id(uri, f"tags.`attnsweep.trial_key` = '{whole.sweep}/{trial}'") for trial in (2, 3))
    # With a later time, so that MLflow takes it as the metric's value.
    client.log_metric(metric, "stuck_rate", 0.125)
    client.log_metric(metric, "a note", 1.0)
    median = client.get_run(param).data.metrics["loss_median"]
    client.log_metric(param, "loss_median", median * (1 + 1e-15))
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        database.execute("update params set value = '0.5' where key = 'init_sigma' and run_uuid = ?", [param])
    [problem] = problems_of(audit(whole.place, uri))
    assert f": 2 ({metric}: stuck_rate 0.125, not 0.0), 3 ({param}: init_sigma 0.5, not " in problem
    for run in (metric, param):
        client.delete_run(run)
    sync(whole, uri)
    assert problems_of(audit(whole.place, uri)) == []


LONG = """
import attnsweep as at
from torch import nn

def model(kind: str = "a"):
    return nn.Linear(4, 1)

def data(draw, batch_size: int = 16):
    x = draw.normal(batch_size, 4)
    return x, x[:, :1]

p = at.problem("long", model=model, data=data, loss="mse", solved=0.05, defaults={"n_steps": 1})

def sweep():
    space = {"kind": at.Categorical(("x" * 7000, "b\\nc"))}
    return at.Sweep(name="long", workload="long.py:p", space=space, sampler="grid", trials=2, replicates=1)
"""


@pytest.mark.slow
def test_texts_that_mlflow_cuts_are_no_fault(store: Path, tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(LONG)
    uri = f"sqlite:///{shutil.copy(store, tmp_path / 'mlflow.db')}"
    directory = trained_sweep(tmp_path / "sweep", load_sweep(str(tmp_path / "long.py")))
    sync(directory, uri)
    assert problems_of(audit(directory.place, uri)) == []
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        [(name,)] = database.execute("select max(name) from runs where name like '%kind=x%'").fetchall()
        assert len(name) == 250
        database.execute("update params set value = ? where value like 'xx%'", ["x" * 5000 + "y" + "x" * 999])
    [problem] = problems_of(audit(directory.place, uri))
    assert f"kind …{'x' * 10}y{'x' * 28}…, not …{'x' * 39}…)" in problem
    assert len(problem) < 500


def test_mlflow_that_has_nothing_is_left_as_it_is(whole: SweepDirectory, tmp_path: Path) -> None:
    missing, trials = problems_of(audit(whole.place, f"sqlite:///{tmp_path}/none/mlflow.db"))
    assert whole.sweep in missing
    assert "0, 1, 2 and 6 more" in trials
    assert list(tmp_path.iterdir()) == []


def test_mlflow_out_of_reach(whole: SweepDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    found = audit(whole.place, f"http://me:secret@127.0.0.1:{port}")
    [problem] = problems_of(found)
    assert f"http://...@127.0.0.1:{port}" in problem
    assert "secret" not in problem
    assert found.trials["logged"] is None
