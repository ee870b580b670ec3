"""MLflow's own web page, in a real browser: a user finds the sweep, its trials and its figure."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient

from orchestrator.sweep_directory import SweepDirectory
from orchestrator.tracking import sync
from tests.end_to_end.chromium import Browser, answers, free_port, open_browser, running
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows


@dataclass(frozen=True)
class Shown:
    """A sweep, and the MLflow page that shows it."""

    directory: SweepDirectory
    url: str
    experiment: str
    parent_run: str


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("browser"), Browser) as tab:
        yield tab


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A sweep of two trials, projected to a database of its own, and `mlflow ui` on it."""
    home = tmp_path_factory.mktemp("mlflow")
    trials = [
        trial_rows(0, ["solved"] * 4, param_init_sigma=0.03, param_learning_rate=1e-2),
        trial_rows(1, ["degenerate_zero"] * 4, param_init_sigma=1e-3, param_learning_rate=2.5e-3),
    ]
    directory = sweep_on_disk(home / "sweep", small_sweep("shown", description="A sweep to be looked at"), *trials)
    database = f"sqlite:///{home / 'mlflow.db'}"
    sync(directory, database)
    client = MlflowClient(database)
    [experiment] = [each.experiment_id for each in client.search_experiments() if each.name == "category_pairs"]
    [parent] = client.search_runs([experiment], "tags.`attnsweep.kind` = 'sweep'")

    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        *(str(Path(sys.executable).with_name("mlflow")), "ui", "--backend-store-uri", database),
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
    ]
    with running(command, home / "mlflow.log", lambda: answers(f"{url}/health")):
        yield Shown(directory, url, experiment, parent.info.run_id)


def test_the_experiment_lists_the_sweep_and_unfolds_its_trials(shown: Shown, browser: Browser, tmp_path: Path) -> None:
    browser.open(f"{shown.url}/#/experiments/{shown.experiment}/runs?workflowType=machine_learning")
    sweep_cell = f"//*[@role='gridcell'][.//a[contains(., '{shown.directory.sweep}')]]"
    browser.click(f"{sweep_cell}//button")
    browser.find("//*[@role='gridcell']//a[contains(., 'sigma=0.03 lr=1e-2 #0')]")
    browser.find("//*[@role='gridcell']//a[contains(., 'sigma=1e-3 lr=0.0025 #1')]")
    browser.screenshot(tmp_path / "runs.png")


def test_the_sweeps_page_describes_it_and_shows_its_figure(shown: Shown, browser: Browser) -> None:
    page = f"{shown.url}/#/experiments/{shown.experiment}/runs/{shown.parent_run}"
    browser.open(f"{page}?workflowType=machine_learning")
    browser.find("//p[text()='A sweep to be looked at']")
    browser.find("//tr[td[1] = 'degenerate_zero' and td[2] = '4']")
    browser.find("//a[contains(., 'sigma=0.03 lr=1e-2 #0')]")

    browser.open(f"{page}/artifacts/figures/stuck_rate.png?workflowType=machine_learning")
    figure = "//img[contains(@src, 'stuck_rate') or starts-with(@src, 'blob:')]"
    assert browser.evaluate("element.decode().then(() => element.naturalWidth)", figure) > 500
