"""MLflow's own web page, in a real browser: a user finds the sweep, its trials and its figure."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking import add_report, sync
from attnsweep.orchestrator.tracking.view import view_id
from tests.end_to_end.chromium import Browser
from tests.end_to_end.servers import answers, running
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.ports import free_ports


@dataclass(frozen=True)
class Shown:
    """A sweep, and the MLflow page that shows it."""

    directory: SweepDirectory
    url: str
    experiment: str
    parent_run: str
    trial_run: str


@pytest.fixture(scope="module")
def shown(browser: Browser, _empty_mlflow_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A sweep of two trials, projected to an MLflow server of its own."""
    home = tmp_path_factory.mktemp("mlflow")
    trials = [
        trial_rows(0, ["solved"] * 4, param_init_sigma=0.03, param_learning_rate=1e-2),
        trial_rows(1, ["degenerate_zero"] * 4, param_init_sigma=1e-3, param_learning_rate=2.5e-3),
    ]
    directory = sweep_on_disk(home / "sweep", small_sweep("shown", description="A sweep to be looked at"), *trials)
    database = f"sqlite:///{shutil.copy(_empty_mlflow_database, home / 'mlflow.db')}"
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [
        *(str(Path(sys.executable).with_name("mlflow")), "ui", "--backend-store-uri", database),
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
    ]
    with running(command, home / "mlflow.log", lambda: answers(f"{url}/health")):
        sync(directory, url)
        add_report(directory, url)
        client = MlflowClient(url)
        [experiment] = [each.experiment_id for each in client.search_experiments() if each.name == "category_pairs"]
        [parent] = client.search_runs([experiment], "tags.`attnsweep.kind` = 'sweep'")
        trial = client.search_runs([experiment], "tags.`attnsweep.kind` = 'trial'")[0]
        yield Shown(directory, url, experiment, parent.info.run_id, trial.info.run_id)


def _unfold(shown: Shown, browser: Browser) -> None:
    browser.click(f"//*[@role='gridcell'][.//a[contains(., '{shown.directory.sweep}')]]//button")


def test_the_experiment_lists_the_sweep_and_unfolds_its_trials(shown: Shown, browser: Browser, tmp_path: Path) -> None:
    browser.open(f"{shown.url}/#/experiments/{shown.experiment}/runs?workflowType=machine_learning")
    _unfold(shown, browser)
    browser.find("//*[@role='gridcell']//a[contains(., '#0 sigma=0.03 lr=1e-2')]")
    browser.find("//*[@role='gridcell']//a[contains(., '#1 sigma=1e-3 lr=0.0025')]")
    browser.screenshot(tmp_path / "runs.png")


@pytest.mark.scale
def test_a_saved_view_has_rates_and_swept_parameters_as_columns(shown: Shown, browser: Browser, tmp_path: Path) -> None:
    page = f"{shown.url}/#/experiments/{shown.experiment}/runs?workflowType=machine_learning"
    browser.open(f"{page}&viewStateShareKey={view_id(shown.directory.spec)}")
    browser.find("//button[contains(., 'shown: trials')]")
    for column in ("stuck_rate", "solved_rate", "loss_median", "init_sigma", "learning_rate"):
        browser.find(f"//*[@role='columnheader'][contains(., '{column}')]")
    _unfold(shown, browser)
    browser.find("//*[@role='gridcell'][. = '0.03']")
    browser.screenshot(tmp_path / "view.png")


@pytest.mark.scale
def test_loss_curves_are_a_section_of_a_trials_charts(shown: Shown, browser: Browser) -> None:
    page = f"{shown.url}/#/experiments/{shown.experiment}/runs/{shown.trial_run}"
    browser.open(f"{page}/model-metrics?workflowType=machine_learning")
    browser.find("//*[normalize-space(text()) = 'loss_curve']")


def test_the_sweeps_page_describes_it_and_shows_its_figure(shown: Shown, browser: Browser) -> None:
    page = f"{shown.url}/#/experiments/{shown.experiment}/runs/{shown.parent_run}"
    browser.open(f"{page}?workflowType=machine_learning")
    browser.find("//p[text()='A sweep to be looked at']")
    browser.find("//tr[td[1] = 'degenerate_zero' and td[2] = '4']")
    browser.find("//a[contains(., '#0 sigma=0.03 lr=1e-2')]")

    browser.open(f"{page}/artifacts/figures/stuck_rate.png?workflowType=machine_learning")
    figure = "//img[contains(@src, 'stuck_rate') or starts-with(@src, 'blob:')]"
    assert browser.evaluate("element.decode().then(() => element.naturalWidth)", figure) > 500


@pytest.mark.scale
def test_the_report_opens_among_the_sweeps_artifacts(shown: Shown, browser: Browser, tmp_path: Path) -> None:
    page = f"{shown.url}/#/experiments/{shown.experiment}/runs/{shown.parent_run}"
    browser.open(f"{page}/artifacts/report/report.html?workflowType=machine_learning")
    height = browser.evaluate("element.getBoundingClientRect().height", "//iframe")
    assert height > 300
    browser.screenshot(tmp_path / "report.png")
