"""What whole sweeps are tried with: a real Ray head, independent of any other Ray here, and a real browser."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.end_to_end.chromium import Browser, open_browser
from tests.ports import accepts_connections, free_ports
from tests.rays import SHARED_RAYS

SECONDS_TO_START = 120
SECONDS_TO_STOP = 30


def _wait_until_started(head: subprocess.Popen[bytes], dashboard_port: int, log: Path) -> None:
    """Return once jobs can be submitted: `ray start` also goes on if its dashboard, which takes them, did not start."""
    deadline = time.monotonic() + SECONDS_TO_START
    while "Ray runtime started" not in log.read_text() or not accepts_connections(dashboard_port):
        with suppress(subprocess.TimeoutExpired):
            head.wait(timeout=0.1)
        if head.returncode is not None or time.monotonic() > deadline:
            pytest.fail(f"ray start (exit code {head.returncode}) did not come up; its log {log}:\n{log.read_text()}")


def _stop(head: subprocess.Popen[bytes]) -> None:
    """End this head and what it started. `ray stop` would end every Ray on the machine."""
    head.terminate()
    with suppress(subprocess.TimeoutExpired):
        head.wait(timeout=SECONDS_TO_STOP)
    with suppress(ProcessLookupError):
        os.killpg(head.pid, signal.SIGKILL)
    head.wait()


@pytest.fixture(scope="session")
def ray_head() -> Mapping[str, str]:
    """A Ray head with token authentication; the environment of a client that may use it."""
    return SHARED_RAYS.enter_context(_head())


@contextmanager
def _head() -> Iterator[Mapping[str, str]]:
    """A Ray head with token authentication; yields the environment of a client that may use it."""
    # Not pytest's own folder: Ray's socket paths must fit into 107 bytes.
    home = Path(tempfile.mkdtemp(prefix="attnsweep-", dir="/tmp"))
    token = home / "auth_token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    port, dashboard_port, client_port, agent_port = free_ports(4)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_"))}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    environment["RAY_DASHBOARD_STARTUP_TIMEOUT_S"] = str(SECONDS_TO_START)
    environment["MLFLOW_TRACKING_URI"] = "sqlite:////dev/null/mlflow.db"
    log = home / "head.log"
    with log.open("wb") as sink:
        head = subprocess.Popen(
            [
                *(Path(sys.executable).with_name("ray"), "start", "--head", "--block"),
                *(f"--port={port}", f"--dashboard-port={dashboard_port}"),
                *(f"--ray-client-server-port={client_port}", f"--dashboard-agent-listen-port={agent_port}"),
                *("--num-cpus=2", "--object-store-memory=100000000"),
                *(f"--temp-dir={home / 'ray'}", "--disable-usage-stats"),
            ],
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_started(head, dashboard_port, log)
        yield environment | {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard_port}"}
    finally:
        _stop(head)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report's page. The tests in the browser run in one process, so it is written once."""
    # Imported here, to spare other tests a second.
    from tests.end_to_end.read_page import write_page

    return write_page(tmp_path_factory.mktemp("report"))
