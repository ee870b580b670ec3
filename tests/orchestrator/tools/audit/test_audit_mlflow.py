"""An MLflow whose runs differ from the ledger's trials, or that cannot be reached."""

import socket
from pathlib import Path

import pytest
from mlflow import MlflowClient

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools.audit.audit import audit
from tests.orchestrator.tools.audit.damages import problems_of
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
    client.log_metric(parent, "n_trainings", 26)
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
