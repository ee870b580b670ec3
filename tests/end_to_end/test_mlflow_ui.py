"""MLflow's own web page, in a real browser: a user finds the sweep, its trials and its figure."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from orchestrator.sweep_directory import SweepDirectory
from orchestrator.tracking import sync
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

SECONDS_TO_START = 60
SECONDS_TO_STOP = 15
SECONDS_TO_SHOW = 30
CHROMIUM_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1600,1000",
)

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Loopback is never asked for through a proxy."""


class Browser:
    """One tab of Chromium, driven by the W3C WebDriver protocol.

    Args:
        driver: Address of a running chromedriver.
        profile: A folder of the browser's own.
    """

    def __init__(self, driver: str, profile: Path) -> None:
        options = {"binary": shutil.which("chromium"), "args": [*CHROMIUM_OPTIONS, f"--user-data-dir={profile}"]}
        self._session = f"{driver}/session"
        capabilities = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}
        started = self._call("POST", "", {"capabilities": capabilities})
        self._session += f"/{started['sessionId']}"
        # What is looked for is waited for, by the driver.
        self._call("POST", "/timeouts", {"implicit": 1000 * SECONDS_TO_SHOW})

    def open(self, url: str) -> None:
        # From one fragment of a page to another would be no new page.
        self._call("POST", "/url", {"url": "about:blank"})
        self._call("POST", "/url", {"url": url})

    def find(self, xpath: str) -> str:
        """The first element that matches, waited for; a failed test with the page's text where none comes."""
        try:
            found = self._call("POST", "/element", {"using": "xpath", "value": xpath})
        except urllib.error.HTTPError as error:
            text = self._call("POST", "/execute/sync", {"script": "return document.body.innerText", "args": []})
            pytest.fail(f"{xpath} did not appear ({error}); the page says:\n{text}")
        [element] = found.values()
        return str(element)

    def click(self, xpath: str) -> None:
        self._call("POST", f"/element/{self.find(xpath)}/click", {})

    def evaluate(self, script: str, xpath: str) -> Any:
        """What a JavaScript expression of `element`, the first that matches, is."""
        element = {"element-6066-11e4-a52e-4f735466cecf": self.find(xpath)}
        script = f"const element = arguments[0]; return {script}"
        return self._call("POST", "/execute/sync", {"script": script, "args": [element]})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def close(self) -> None:
        self._call("DELETE", "")

    def _call(self, method: str, command: str, content: Mapping[str, Any] | None = None) -> Any:
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._session + command, body, method=method)
        with _DIRECT.open(request, timeout=2 * SECONDS_TO_SHOW) as answer:
            return json.load(answer)["value"]


@dataclass(frozen=True)
class Shown:
    """A sweep, and the MLflow page that shows it."""

    directory: SweepDirectory
    url: str
    experiment: str
    parent_run: str


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def _answers(url: str) -> bool:
    with suppress(OSError), _DIRECT.open(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


@contextmanager
def _running(command: Sequence[str], log: Path, is_up: Callable[[], bool]) -> Iterator[None]:
    """A process with all that it starts, ended by its own process group."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            env=environment | {"MLFLOW_DISABLE_TELEMETRY": "true"},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + SECONDS_TO_START
        while not is_up():
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.1)
            if process.returncode is not None or time.monotonic() > deadline:
                pytest.fail(f"{command[0]} (exit code {process.returncode}) did not come up:\n{log.read_text()}")
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=SECONDS_TO_STOP)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on the PATH (Debian: apt-get install chromium chromium-driver)")
    home = tmp_path_factory.mktemp("browser")
    driver = f"http://127.0.0.1:{_free_port()}"
    command = ["chromedriver", f"--port={driver.rpartition(':')[2]}"]
    with _running(command, home / "chromedriver.log", lambda: _answers(f"{driver}/status")):
        tab = Browser(driver, home / "profile")
        try:
            yield tab
        finally:
            tab.close()


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

    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        *(str(Path(sys.executable).with_name("mlflow")), "ui", "--backend-store-uri", database),
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
    ]
    with _running(command, home / "mlflow.log", lambda: _answers(f"{url}/health")):
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
