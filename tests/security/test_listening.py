"""A running sweep on this machine: who can connect, who is allowed to, and that no process outlives it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.training.cluster import fault_of

BIN = Path(sys.executable).parent
SECONDS_TO_STOP = 60

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory, in which the sweep runs in `s`."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def sweep(home: Path, no_mlflow: None) -> Iterator[subprocess.Popen[str]]:
    """`attnsweep run`, from its first trained pack on."""
    command = [str(BIN / "attnsweep"), "run", "quickstart", "--trials", "5000", "--pack-size", "4", "--trainers", "1"]
    with subprocess.Popen(
        [*command, "--dir", "s", "--engine", "eager", "--set", "n_steps=50"],
        cwd=home,
        env=_environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if re.search(r"trainings [1-9]", line):
                    break
            # Its trainings play no part in what is looked at, and would keep a core busy.
            _trainer(process).suspend()
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_it_listens_on_loopback_alone(sweep: subprocess.Popen[str]) -> None:
    listening = {
        (process.name(), heard.laddr.ip.removeprefix("::ffff:"))
        for process in _tree(sweep)
        for heard in process.net_connections("tcp")
        if heard.status == psutil.CONN_LISTEN
    }
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    assert {address for _, address in listening} <= {"127.0.0.1", "::1"}


def test_it_asks_for_a_token(sweep: subprocess.Popen[str]) -> None:
    """`RAY_AUTH_MODE` is not set."""
    (gcs,) = (each for each in _tree(sweep) if each.name() == "gcs_server")
    assert gcs.environ()["RAY_AUTH_MODE"] == "token"
    ports = [each.laddr.port for each in gcs.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    # The last one prevents Ray from replacing 127.0.0.1 by the network's address.
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a stranger's", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    stranger = _environment() | token
    assert any("AuthenticationError" in fault_of(f"127.0.0.1:{port}", stranger) for port in ports)


def test_ctrl_c_commits_what_is_done_and_leaves_nobody_listening(sweep: subprocess.Popen[str], home: Path) -> None:
    """Sends SIGINT to the whole process group, as a terminal does."""
    processes = _tree(sweep)
    _trainer(sweep).resume()
    os.killpg(sweep.pid, signal.SIGINT)
    _, errors = sweep.communicate(timeout=SECONDS_TO_STOP)
    assert sweep.returncode == 130, errors
    assert "interrupted; continue with: attnsweep resume s" in errors
    assert "Traceback" not in errors
    assert Ledger(home / "s").trainings().num_rows > 0
    _, alive = psutil.wait_procs(processes, timeout=SECONDS_TO_STOP)
    assert alive == []


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


def _tree(sweep: subprocess.Popen[str]) -> list[psutil.Process]:
    process = psutil.Process(sweep.pid)
    return [process, *process.children(recursive=True)]


def _trainer(sweep: subprocess.Popen[str]) -> psutil.Process:
    (trainer,) = (each for each in _tree(sweep) if each.name().startswith("ray::TrainerAct"))
    return trainer
