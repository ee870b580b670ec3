"""Servers that tests kill, freeze and restart: MLflow's, and PostgreSQL from Debian's packages."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.end_to_end.servers import answers
from tests.ports import free_ports

SECONDS_TO_WAIT = 120


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_TO_WAIT
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {SECONDS_TO_WAIT} s in vain: {what}")
        threading.Event().wait(0.02)


class Server(ABC):
    """A process and its descendants, in their own process group.

    Args:
        command: What starts it, every time.
        log: What it says.
        settings: For `subprocess.Popen`.
    """

    def __init__(self, command: list[str], log: Path, **settings: Any) -> None:
        self._command, self._log, self._settings = command, log, settings
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def is_up(self) -> bool:
        """Whether the server answers."""

    def start(self) -> None:
        with self._log.open("ab") as sink:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **self._settings,
            )
        wait_until(lambda: self._has_ended() or self.is_up(), f"{self._command[0]} to start, see {self._log}")
        if self._has_ended():
            pytest.fail(f"{self._command[0]} ended (exit code {self._process.returncode}):\n{self._log.read_text()}")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Ends the server, and waits until it is gone."""
        if self._process is None:
            return
        self.send(number)
        self._process.wait(SECONDS_TO_WAIT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freezes the server: the kernel still accepts connections, but nothing answers."""
        self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def send(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None


class MlflowServer(Server):
    """`mlflow server` on a database, with its artifacts beside its log.

    Attributes:
        database: What it stores runs in, as SQLAlchemy takes it.
        url: Where it listens.
    """

    def __init__(self, database: str, home: Path) -> None:
        self.database = database
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        command = [
            *(str(Path(sys.executable).with_name("mlflow")), "server", "--backend-store-uri", database),
            *("--artifacts-destination", str(home / "artifacts")),
            *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        environment |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        super().__init__(command, home / "mlflow.log", cwd=home, env=environment)

    def is_up(self) -> bool:
        return answers(f"{self.url}/health")


class PostgresServer(Server):
    """PostgreSQL on a unix socket in its own folder, run as a user that is not root, as it demands."""

    def __init__(self, programs: Path, home: Path, **user: Any) -> None:
        self._home = home
        data = home / "data"
        subprocess.run(
            [str(programs / "initdb"), "--auth=trust", "--username=attnsweep", "--no-sync", "-E", "UTF8", str(data)],
            check=True,
            capture_output=True,
            cwd=home,
            **user,
        )
        command = [str(programs / "postgres"), "-D", str(data), "-k", str(home), "-h", "", "-F"]
        super().__init__(command, home / "postgres.log", cwd=home, **user)

    def uri(self, database: str) -> str:
        return f"postgresql+psycopg2://attnsweep@/{database}?host={self._home}"

    def is_up(self) -> bool:
        with suppress(psycopg2.OperationalError):
            psycopg2.connect(dbname="postgres", user="attnsweep", host=str(self._home)).close()
            return True
        return False

    def create(self, database: str) -> None:
        connection = psycopg2.connect(dbname="postgres", user="attnsweep", host=str(self._home))
        connection.autocommit = True
        connection.cursor().execute(f"create database {database}")
        connection.close()

    @contextmanager
    def locked(self, database: str, table: str) -> Iterator[None]:
        """Locks a table: whoever reads or writes it waits forever."""
        connection = psycopg2.connect(dbname=database, user="attnsweep", host=str(self._home))
        try:
            connection.cursor().execute(f"lock table {table} in access exclusive mode")
            yield
        finally:
            connection.close()

    def crash(self) -> None:
        """Kills PostgreSQL without a shutdown: connections are cut, and the next start recovers from its log."""
        self.kill(signal.SIGQUIT)


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL; the test is skipped if it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("no PostgreSQL under /usr/lib/postgresql (Debian: apt-get install postgresql)")
    # Not pytest's folder: only its owner may enter it, and a socket's path must fit into 107 bytes.
    home = Path(tempfile.mkdtemp(prefix="attnsweep-postgres-", dir="/tmp"))
    user: dict[str, Any] = {}
    if os.getuid() == 0:
        # PostgreSQL refuses to run as root.
        owner = pwd.getpwnam("postgres")
        os.chown(home, owner.pw_uid, owner.pw_gid)
        user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    try:
        server = PostgresServer(found[-1].parent, home, **user)
        server.start()
        try:
            yield server
        finally:
            server.crash()
    finally:
        shutil.rmtree(home, ignore_errors=True)
