"""MLflow's own web page, in a real browser: a user finds the sweep, its trials and its figure."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.sync import sync
from tests.end_to_end.chromium import Browser
from tests.end_to_end.servers import answers, running
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.ports import free_ports

pytestmark = pytest.mark.scale


@dataclass(frozen=True)
class Shown:
    """A sweep, and the MLflow page that shows it."""

    directory: SweepDirectory
    url: str
    experiment: str
    parent_run: str

    @property
    def page(self) -> str:
        return f"{self.url}/#/experiments/{self.experiment}/runs"

    def trial_run(self) -> str:
        found = MlflowClient(self.url).search_runs([self.experiment], "tags.`attnsweep.kind` = 'trial'", max_results=1)
        return str(found[0].info.run_id)


@contextmanager
def _shown(directory: SweepDirectory, home: Path, empty_database: Path) -> Iterator[Shown]:
    """The sweep, projected to an MLflow server of its own."""
    database = f"sqlite:///{shutil.copy(empty_database, home / 'mlflow.db')}"
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [
        *(str(Path(sys.executable).with_name("mlflow")), "ui", "--backend-store-uri", database),
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
    ]
    with running(command, home / "mlflow.log", lambda: answers(f"{url}/health")):
        sync(directory, url)
        client = MlflowClient(url)
        [experiment] = [each.experiment_id for each in client.search_experiments() if each.name == "category_pairs"]
        [parent] = client.search_runs([experiment], "tags.`attnsweep.kind` = 'sweep'")
        yield Shown(directory, url, experiment, parent.info.run_id)


@pytest.fixture(scope="module")
def shown(browser: Browser, _empty_mlflow_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A sweep of two trials."""
    home = tmp_path_factory.mktemp("mlflow")
    trials = [
        trial_rows(0, ["solved"] * 4, param_init_sigma=0.03, param_learning_rate=1e-2),
        trial_rows(1, ["degenerate_zero"] * 4, param_init_sigma=1e-3, param_learning_rate=2.5e-3),
    ]
    directory = sweep_on_disk(home / "sweep", small_sweep("shown", description="A sweep to be looked at"), *trials)
    with _shown(directory, home, _empty_mlflow_database) as found:
        yield found


def _unfold(shown: Shown, browser: Browser) -> None:
    browser.click(f"//*[@role='gridcell'][.//a[contains(., '{shown.directory.sweep}')]]//button")


def test_the_experiment_lists_the_sweep_and_unfolds_its_trials(shown: Shown, browser: Browser, tmp_path: Path) -> None:
    browser.open(f"{shown.page}?workflowType=machine_learning")
    _unfold(shown, browser)
    browser.find("//*[@role='gridcell']//a[contains(., '#0 init_sigma=0.03 learning_rate=0.01')]")
    browser.find("//*[@role='gridcell']//a[contains(., '#1 init_sigma=0.001 learning_rate=0.0025')]")
    browser.screenshot(tmp_path / "runs.png")


def test_the_sweeps_page_describes_it_and_shows_its_trials(shown: Shown, browser: Browser) -> None:
    page = f"{shown.page}/{shown.parent_run}"
    browser.open(f"{page}?workflowType=machine_learning")
    browser.find("//p[text()='A sweep to be looked at']")
    browser.find("//tr[td[1] = 'degenerate_zero' and td[2] = '4']")
    browser.find("//a[contains(., '#0 init_sigma=0.03 learning_rate=0.01')]")
