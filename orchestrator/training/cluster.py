"""The Ray cluster that trains a sweep: either started on this machine, or one that is already running."""

import logging
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import urlsplit

import ray

from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.ray_internals import ask_for_token, starting_on_loopback
from attnsweep.workloads.errors import UserError, in_words

_HEALTH_SECONDS = 15.0
_REACH_SECONDS = 2.0


@dataclass(frozen=True)
class Cluster:
    """A Ray to which this process is connected.

    Attributes:
        head: Where it answers, HOST:PORT.
        is_ours: Whether it was started for this run, on this machine alone.
    """

    head: str
    is_ours: bool = False

    def answers(self) -> bool:
        """Whether the head's port takes a connection. Ray's own calls would wait, and in the end kill this process."""
        host, _, port = self.head.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS).close()
        except (OSError, UnicodeError):
            return False
        return True

    def nodes(self) -> dict[str, dict[str, float]]:
        """What Ray may assign on each node that is up, by the node's id."""
        return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}


@contextmanager
def connection(address: str | None) -> Iterator[Cluster]:
    """Connects this process to the Ray cluster at `address`, by default `RAY_ADDRESS`, or without both to one that is
    started on this machine and ends with the context. A process that is connected keeps its connection.

    Raises UserError if nothing answers at the address, PoolError if Ray does not start here."""
    if ray.is_initialized():
        yield Cluster(ray.get_runtime_context().gcs_address)
        return
    address = os.environ.get("RAY_ADDRESS") or None if address is None else address
    address = None if address == "local" else address
    if address is None:
        _start_here()
    else:
        _check_reachable(address)
        try:
            _initialize(address)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _unreachable(address, str(error).splitlines()[0]) from error
    try:
        is_client = address is not None and address.startswith("ray://")
        head = urlsplit(address).netloc if is_client else ray.get_runtime_context().gcs_address
        yield Cluster(str(head), is_ours=address is None)
    finally:
        # `ray.shutdown` does nothing if Ray has already ended.
        ray.shutdown()


def _start_here() -> None:
    ask_for_token()
    _keep_token_elsewhere()
    try:
        with starting_on_loopback():
            _initialize("local")
    except Exception as error:
        ray.shutdown()
        raise PoolError(
            f"Ray did not start on this machine ({in_words(error)}); "
            "check memory, disk and load, then try again; Ray's logs are in /tmp/ray/session_latest/logs"
        ) from error


def _keep_token_elsewhere() -> None:
    """In the environment, where Ray cannot keep it in the user's home."""
    home = Path.home() / ".ray"
    is_given = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    if is_given or os.access(home / "auth_token", os.R_OK):
        return
    try:
        home.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=home):  # permission bits do not tell whether a file can be created
            pass
    except OSError:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _initialize(address: str) -> None:
    with _keeping_signals():
        ray.init(
            address=address,
            include_dashboard=False if address == "local" else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )


@contextmanager
def _keeping_signals() -> Iterator[None]:
    """Keeps the program's own SIGTERM handler, which Ray would replace by one that exits.

    Ray's processes inherit that schedulers' signals are blocked. Sent to all processes of a job, these would kill
    trainers before the driver has asked for their state.
    """
    before = signal.getsignal(signal.SIGTERM)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2))
    try:
        yield
    except SystemExit as ended:
        raise KeyboardInterrupt from ended
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _check_reachable(address: str) -> None:
    if address == "auto":
        return
    try:
        parts = urlsplit(address if "//" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or "@" in address:
        expected = "the address of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT"
        fix = "give the address that `ray start --head` printed"
        raise UserError("--address", given=re.sub(".*@", "...@", address), expected=expected, fix=fix)
    if not Cluster(f"{host}:{port}").answers():
        raise _unreachable(address, "nothing listens there")
    if parts.scheme == "ray":
        return
    fault = fault_of(address, os.environ)
    if "AuthenticationError" in fault:
        expected = "a Ray cluster that accepts the token of this process"
        fix = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the cluster's token unless in ~/.ray/auth_token"
        raise UserError("--address", given=address, expected=expected, fix=fix)
    if fault:
        raise _unreachable(address, "a program listens at this address, but the program is not Ray")


def fault_of(address: str, variables: Mapping[str, str]) -> str:
    """What `ray health-check` says with these environment variables; empty if all is well."""
    # `ray.init` would try for twenty seconds to minutes, and not say that the token is wrong.
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
    if address != "auto":
        command += ["--address", address]
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=_HEALTH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_HEALTH_SECONDS:g} s"
    return "" if done.returncode == 0 else done.stderr


def _unreachable(address: str, reason: str) -> UserError:
    fix = f"start one with `ray start --head`, or leave the address out to run here ({reason})"
    return UserError("--address", given=address, expected="the address of a running Ray cluster", fix=fix)
