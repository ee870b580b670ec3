"""What whole sweeps are tried with: a real Ray head, independent of any other Ray here, and a real browser."""

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.chromium import Browser, open_browser
from tests.end_to_end.servers import SECONDS_TO_START, running
from tests.ports import accepts_connections, free_ports
from tests.rays import SHARED_RAYS


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
    command: list[str | Path] = [
        *(Path(sys.executable).with_name("ray"), "start", "--head", "--block"),
        *(f"--port={port}", f"--dashboard-port={dashboard_port}"),
        *(f"--ray-client-server-port={client_port}", f"--dashboard-agent-listen-port={agent_port}"),
        *("--num-cpus=2", "--object-store-memory=100000000"),
        *(f"--temp-dir={home / 'ray'}", "--disable-usage-stats"),
    ]

    def is_up() -> bool:
        # `ray start` also goes on if its dashboard, which takes jobs, did not start.
        return "Ray runtime started" in log.read_text() and accepts_connections(dashboard_port)

    try:
        # `ray stop` would end every Ray on the machine.
        with running(command, log, is_up, environment):
            yield environment | {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard_port}"}
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("browser")) as tab:
        yield tab
