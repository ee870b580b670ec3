"""The report among a sweep's artifacts."""

import logging
from pathlib import Path

import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner

from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking import processes
from attnsweep.orchestrator.tracking.follow import sync
from attnsweep.orchestrator.tracking.projection import Projection, have_report_drawn
from attnsweep.orchestrator.tracking.report import add_report
from tests.orchestrator.mlflow_runs import everything_stored, runs_of, warnings_in
from tests.orchestrator.small_sweep import commit, folder_of, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.present import present

pytestmark = pytest.mark.usefixtures("client")

SOLVED = ["solved"] * 4
PLAIN = {"n_steps": 8}
"""A space that varies nothing: its report has two figures."""


def _artifacts(client: MlflowClient, directory: SweepDirectory, folder: str) -> dict[str, int]:
    [parent] = runs_of(client, directory, "sweep")
    return {file.path: present(file.file_size) for file in client.list_artifacts(parent.info.run_id, folder)}


def _report(client: MlflowClient, directory: SweepDirectory) -> Path:
    [parent] = runs_of(client, directory, "sweep")
    return Path(client.download_artifacts(parent.info.run_id, "report/report.html"))


@pytest.mark.scale
@pytest.mark.slow
def test_the_report_is_an_artifact_of_the_sweeps_run(client: MlflowClient, tmp_path: Path) -> None:
    trials = trial_rows(0, SOLVED, param_init_sigma=0.1), trial_rows(1, ["marginal"] * 4, param_init_sigma=0.01)
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("reported"), *trials)
    done = CliRunner().invoke(app, ["mlflow-sync", str(directory.place)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "8 trainings" in _report(client, directory).read_text()
    figures = _artifacts(client, directory, "report/report_figures")
    assert "report/report_figures/curves_solved.svg" in figures
    assert min(figures.values()) > 1000
    assert not (folder_of(directory) / "report").exists()


@pytest.mark.scale
@pytest.mark.slow
def test_a_report_is_drawn_again_when_there_are_more_rows(client: MlflowClient, tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("grown", space=PLAIN), trial_rows(0, SOLVED))
    sync(directory)
    add_report(directory)
    before, written = everything_stored(), _report(client, directory).stat()
    add_report(directory)
    assert (everything_stored(), _report(client, directory).stat().st_mtime_ns) == (before, written.st_mtime_ns)
    with open_writer(directory) as writer:
        commit(writer, trial_rows(1, SOLVED))
    sync(directory)
    add_report(directory)
    assert "8 trainings" in _report(client, directory).read_text()


@pytest.mark.slow
def test_what_keeps_the_report_from_being_drawn_is_a_warning(
    client: MlflowClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("torn"), trial_rows(0, SOLVED))
    sync(directory)
    [fragment] = (folder_of(directory) / "trainings").glob("*.parquet")
    fragment.write_bytes(b"torn")
    with caplog.at_level(logging.WARNING, logger="attnsweep.orchestrator.tracking"):
        add_report(directory)
    [warning] = warnings_in(caplog)
    assert warning.startswith("no report in MLflow: ")
    assert f"`attnsweep mlflow-sync {directory.place}` adds it" in warning
    assert _artifacts(client, directory, "report") == {}


@pytest.mark.scale
@pytest.mark.slow
def test_the_process_that_logged_a_sweep_adds_its_report(
    client: MlflowClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = sweep_on_disk(tmp_path / "sweep", small_sweep("elsewhere", space=PLAIN), trial_rows(0, SOLVED))
    projection = Projection(directory)
    projection.close()
    have_report_drawn(directory, keep=True, in_mlflow=True)
    kept = folder_of(directory) / "report" / "report.html"
    assert kept.read_text() == _report(client, directory).read_text()
    assert "4 trainings" in kept.read_text()
    assert [each.pid for each in processes._idle] == [projection._process.pid]
    with open_writer(directory) as writer:
        commit(writer, trial_rows(1, SOLVED))
    sync(directory)
    (folder_of(directory) / "sweep.json").write_text("torn")
    with caplog.at_level(logging.WARNING, logger="attnsweep.orchestrator.tracking"):
        have_report_drawn(directory, keep=False, in_mlflow=True)
    [warning] = warnings_in(caplog)
    assert warning.startswith("no report: ")
    assert "4 trainings" in _report(client, directory).read_text()


@pytest.mark.slow
def test_runs_of_sweeps_of_one_name_are_found_by_it(client: MlflowClient, tmp_path: Path) -> None:
    for folder in ("first", "second"):
        sync(sweep_on_disk(tmp_path / folder, small_sweep("named"), trial_rows(0, SOLVED)))
    [experiment] = [each.experiment_id for each in client.search_experiments() if each.name == "category_pairs"]
    found = client.search_runs([experiment], "tags.`attnsweep.name` = 'named' and metrics.stuck_rate < 0.5")
    assert sorted(run.data.tags["attnsweep.kind"] for run in found) == ["sweep", "sweep", "trial", "trial"]
