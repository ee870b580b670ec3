"""Debian's Chromium for tests of web pages, and the processes around it."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

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
"""Opens URLs without a proxy: loopback must not go through one."""


class Browser:
    """One tab of Chromium, driven by the W3C WebDriver protocol.

    Args:
        driver: Address of a running chromedriver.
        profile: A folder of the browser's own.
    """

    capabilities: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, driver: str, profile: Path) -> None:
        options = {"binary": shutil.which("chromium"), "args": [*CHROMIUM_OPTIONS, f"--user-data-dir={profile}"]}
        self._session = f"{driver}/session"
        capabilities = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options, **self.capabilities}}
        started = self.call("POST", "", {"capabilities": capabilities})
        self._session += f"/{started['sessionId']}"
        # The driver waits for each element that is looked up.
        self.call("POST", "/timeouts", {"implicit": 1000 * SECONDS_TO_SHOW})

    def open(self, url: str) -> None:
        # Going from one fragment of a page to another would not reload the page.
        self.call("POST", "/url", {"url": "about:blank"})
        self.call("POST", "/url", {"url": url})

    def find(self, xpath: str) -> str:
        """Waits for the first element that matches; if none appears, the test fails and shows the page's text."""
        try:
            found = self.call("POST", "/element", {"using": "xpath", "value": xpath})
        except urllib.error.HTTPError as error:
            text = self.call("POST", "/execute/sync", {"script": "return document.body.innerText", "args": []})
            pytest.fail(f"{xpath} did not appear ({error}); the page says:\n{text}")
        [element] = found.values()
        return str(element)

    def click(self, xpath: str) -> None:
        self.call("POST", f"/element/{self.find(xpath)}/click", {})

    def evaluate(self, script: str, xpath: str) -> Any:
        """The value of a JavaScript expression in `element`, the first element that matches."""
        element = {"element-6066-11e4-a52e-4f735466cecf": self.find(xpath)}
        script = f"const element = arguments[0]; return {script}"
        return self.call("POST", "/execute/sync", {"script": script, "args": [element]})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("GET", "/screenshot")))

    def close(self) -> None:
        self.call("DELETE", "")

    def call(self, method: str, command: str, content: Mapping[str, Any] | None = None) -> Any:
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._session + command, body, method=method)
        with _DIRECT.open(request, timeout=2 * SECONDS_TO_SHOW) as answer:
            return json.load(answer)["value"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def answers(url: str) -> bool:
    with suppress(OSError), _DIRECT.open(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


@contextmanager
def running(command: Sequence[str], log: Path, is_up: Callable[[], bool]) -> Iterator[None]:
    """A process in its own process group; the context ends the whole group."""
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


B = TypeVar("B", bound=Browser)


@contextmanager
def open_browser(home: Path, kind: type[B]) -> Iterator[B]:
    """A browser with its driver, with a profile folder of its own; the test is skipped if there is no browser."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on the PATH (Debian: apt-get install chromium chromium-driver)")
    driver = f"http://127.0.0.1:{free_port()}"
    command = ["chromedriver", f"--port={driver.rpartition(':')[2]}"]
    with running(command, home / "chromedriver.log", lambda: answers(f"{driver}/status")):
        tab = kind(driver, home / "profile")
        try:
            yield tab
        finally:
            tab.close()
