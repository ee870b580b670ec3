"""Where a sweep runs: Ray on this machine, or a cluster that is up already."""

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import ray
from ray._private import ray_constants
from ray._private import services as ray_services
from ray._private import utils as ray_utils
from ray.exceptions import RayError

from orchestrator.errors import ClusterError
from workloads.errors import UserError, in_words

_REACH_SECONDS = 5.0
_ANSWER_SECONDS = 20.0
_DRAINING_ANSWER_SECONDS = 1.0
_START_SECONDS, _PATIENT_START_SECONDS = 30.0, 120.0
_LOOK_SECONDS = 0.2
_CONTROL_STORE_WAIT = "RAY_gcs_server_port_wait_time_s"
_VITAL = frozenset({"gcs_server", "raylet"})


@dataclass(frozen=True)
class TrainerShare:
    """What one trainer asks Ray for.

    Attributes:
        device: `cpu` or `cuda`.
        num_cpus, num_gpus: Ray resources; fractions of a GPU share it.
    """

    device: str
    num_cpus: float
    num_gpus: float


@contextmanager
def connection(address: str | None) -> Iterator[None]:
    """A connection to the cluster at `address` or `RAY_ADDRESS`, or to a Ray started on this machine for its time.

    A process that is connected already (a notebook, a larger program) keeps its connection.

    Raises:
        UserError: If nothing answers at the address.
        ClusterError: If Ray does not start here.
    """
    if ray.is_initialized():
        yield
        return
    _connect(os.environ.get("RAY_ADDRESS") or None if address is None else address)
    try:
        yield
    finally:
        ray.shutdown()


def _connect(address: str | None) -> None:
    if address is None:
        _start()
        return
    _check_reachable(address)
    try:
        with _keeping_sigterm():
            _initialize(address)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _unreachable(address, str(error).splitlines()[0]) from error


def _start() -> None:
    """Starts Ray on this machine; a second time, with more patience, if it does not come up."""
    for seconds in (_START_SECONDS, _PATIENT_START_SECONDS):
        try:
            with _on_loopback(), _keeping_sigterm(), _up_within(seconds):
                _initialize("local")
        except Exception as error:  # noqa: BLE001  # Ray raises whatever stopped it, and plain `Exception`.
            reason = in_words(error)
            ray.shutdown()
        else:
            return
    raise ClusterError(
        f"Ray did not start on this machine, tried twice, at last for {_PATIENT_START_SECONDS:g} s ({reason}); "
        "its logs are in /tmp/ray/session_latest/logs: see to memory, disk and load, then try again"
    )


def _initialize(address: str) -> None:
    # What Ray's parts say as they die is pages long and goes to stdout.
    ray._private.worker._worker_logs_enabled = False
    ray.init(
        address=address,
        include_dashboard=False if address == "local" else None,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


@contextmanager
def _up_within(seconds: float) -> Iterator[None]:
    """A Ray that starts meanwhile has so long for each of its two parts, the control store and this node.

    Ray itself waits 30 s for each, and can be told otherwise for the first alone.
    """
    look = ray_services.get_node

    def get_node(gcs_address: str, node_id: str) -> object:
        deadline = time.monotonic() + seconds
        while True:
            try:
                return look(gcs_address, node_id)  # type: ignore[no-untyped-call]
            except RuntimeError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"this node did not come up within {seconds:g} s") from error
                time.sleep(_LOOK_SECONDS)

    ray_services.get_node = get_node
    before = os.environ.get(_CONTROL_STORE_WAIT)
    os.environ.setdefault(_CONTROL_STORE_WAIT, f"{seconds:.0f}")
    try:
        yield
    finally:
        ray_services.get_node = look
        if before is None:
            del os.environ[_CONTROL_STORE_WAIT]


@contextmanager
def _on_loopback() -> Iterator[None]:
    """A Ray that starts meanwhile listens on this machine's loopback alone, as it does by default on macOS.

    On Linux it listens on every network, and turns an address of 127.0.0.1 that it is given into the network's.
    """
    of_clusters = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = of_clusters


@contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """A program's own answer to SIGTERM outlives Ray's start, which would set one that exits at once."""
    set_handler = ray_utils.set_sigterm_handler
    if callable(signal.getsignal(signal.SIGTERM)):
        ray_utils.set_sigterm_handler = lambda _: None
    try:
        yield
    finally:
        ray_utils.set_sigterm_handler = set_handler


def share_out(n_trainers: int | None) -> list[TrainerShare]:
    """What each trainer gets: by default one trainer per GPU, or per CPU core where there is none.

    Raises:
        UserError: If more CPU trainers are asked for than there are cores.
    """
    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    n_gpus, n_cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    if n_gpus > 0:
        n_trainers = n_trainers or n_gpus
        per_gpu = -(-n_trainers // n_gpus)
        cpus = min(1.0, n_cpus / n_trainers)
        return [TrainerShare("cuda", cpus, 1.0 / per_gpu)] * n_trainers
    if n_trainers is not None and n_trainers > n_cpus:
        raise UserError(
            "--trainers",
            given=n_trainers,
            expected=f"1..{n_cpus} (CPU cores of the cluster)",
            mend="lower it: a trainer keeps one core busy",
        )
    return [TrainerShare("cpu", 1.0, 0.0)] * (n_trainers or n_cpus)


def dead_process() -> str | None:
    """Which process of a Ray that was started here has died, so that it can do no more; `None` where all are well."""
    node = ray._private.worker._global_node
    dead: list[str] = [] if node is None else [kind for kind, _ in node.dead_processes()]
    return next((kind for kind in dead if kind in _VITAL), None)


def draining_nodes() -> frozenset[str] | None:
    """The ids of nodes that Ray is about to take away: spot machines given notice, nodes that are scaled down.

    Through `ray://` nothing is known of them; there a node's SIGTERM still reaches its trainers.

    Returns:
        `None` if the head did not answer.
    """
    client = getattr(ray._private.worker.global_worker, "gcs_client", None)
    if client is None:
        return frozenset()
    try:
        return frozenset(client.get_draining_nodes(timeout=_DRAINING_ANSWER_SECONDS))
    except RayError:
        return None


def _check_reachable(address: str) -> None:
    if address in ("auto", "local"):
        return
    try:
        parts = urlsplit(address if "//" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or "@" in address:
        raise UserError(
            "--address",
            given=re.sub(".*@", "...@", address),
            expected="auto, HOST:PORT or ray://HOST:PORT",
            mend="give the address that `ray start --head` printed",
        )
    try:
        socket.create_connection((host, port), timeout=_REACH_SECONDS).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error
    except UnicodeError as error:
        raise _unreachable(address, "no machine can have this name") from error
    if parts.scheme != "ray":
        _check_is_ray(address)


def _check_is_ray(address: str) -> None:
    """Asks for the cluster's status in a process that can be given up: `ray.init` waits minutes for an answer."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise _unreachable(address, "something listens there that does not answer as Ray does") from error
    if asked.returncode != 0:
        lines = (asked.stderr or asked.stdout).strip().splitlines()
        raise _unreachable(address, lines[-1] if lines else "it did not answer")


def _unreachable(address: str, reason: str) -> UserError:
    return UserError(
        "--address",
        given=address,
        expected="the address of a running Ray cluster",
        mend=f"start one with `ray start --head`, or leave the address out to run here ({reason})",
    )
