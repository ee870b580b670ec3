"""Servers that a test starts and ends: each a process group of its own."""

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SECONDS_TO_START = 120
SECONDS_TO_STOP = 30

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Loopback is never asked for through a proxy."""


def answers(url: str) -> bool:
    with suppress(OSError), _DIRECT.open(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


@contextmanager
def running(
    command: Sequence[str | Path], log: Path, is_up: Callable[[], bool], environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A process with all that it starts, ended by its own process group; its environment is ours without MLflow's."""
    if environment is None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            # MLflow's jobs, which no test submits, would be eight more processes.
            env={**environment, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
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
