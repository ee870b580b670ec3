"""Where a sweep runs: a Ray started on this machine, or a running cluster."""

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import ray
from ray.exceptions import AuthenticationError, RayError

from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.ray_internals import (
    ask_control_store,
    control_store,
    keeping_sigterm,
    silence_workers,
    starting_on_loopback,
    up_within,
    use_own_token,
)
from attnsweep.workloads.errors import UserError, in_words

_REACH_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
_DRAINING_ANSWER_SECONDS = 1.0
_START_SECONDS, _PATIENT_START_SECONDS = 30.0, 120.0


@dataclass(frozen=True)
class TrainerShare:
    """The resources of one trainer.

    Attributes:
        device: `cpu` or `cuda`.
        num_cpus, num_gpus: Ray resources; fractions of a GPU share it.
    """

    device: str
    num_cpus: float
    num_gpus: float


@contextmanager
def connection(address: str | None) -> Iterator[None]:
    """A connection to the cluster at `address` or `RAY_ADDRESS`; without either, to a Ray that is started here.

    A Ray started here ends with the context. A process that is already connected keeps its connection.

    Raises:
        UserError: If nothing answers at the address.
        PoolError: If Ray does not start here.
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
        with keeping_sigterm():
            _initialize(address)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _unreachable(address, str(error).splitlines()[0]) from error


def _start() -> None:
    """Starts Ray on this machine. If it does not start, tries once more with a longer limit."""
    for seconds in (_START_SECONDS, _PATIENT_START_SECONDS):
        try:
            with starting_on_loopback(), keeping_sigterm(), up_within(seconds):
                _initialize("local")
        except Exception as error:  # noqa: BLE001  # Ray raises whatever stopped it, and plain `Exception`.
            reason = in_words(error)
            ray.shutdown()
        else:
            return
    raise PoolError(
        f"Ray did not start on this machine, tried twice, at last for {_PATIENT_START_SECONDS:g} s ({reason}); "
        "its logs are in /tmp/ray/session_latest/logs: check memory, disk and load, then try again"
    )


def _initialize(address: str) -> None:
    silence_workers()
    ray.init(
        address=address,
        include_dashboard=False if address == "local" else None,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def share_out(n_trainers: int | None) -> list[TrainerShare]:
    """The resources of each trainer. By default there is one trainer per GPU, or per CPU core without GPUs.

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
            fix="lower it: a trainer keeps one core busy",
        )
    return [TrainerShare("cpu", 1.0, 0.0)] * (n_trainers or n_cpus)


def draining_nodes() -> frozenset[str] | None:
    """The ids of nodes that Ray is about to remove, such as spot machines that were given notice.

    Ray does not report them through `ray://`; there the trainers still get SIGTERM from their node.

    Returns:
        `None` if the head did not answer.
    """
    client = control_store()
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
            fix="give the address that `ray start --head` printed",
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
    try:
        try:
            ask_control_store(address, _ANSWER_SECONDS)
        except AuthenticationError:
            if not use_own_token():
                raise
            ask_control_store(address, _ANSWER_SECONDS)
    except AuthenticationError as error:
        raise UserError(
            "--address",
            given=address,
            expected="a Ray cluster that accepts the token of this process",
            fix="set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file with the cluster's token, unless that is in"
            " ~/.ray/auth_token",
        ) from error
    except ConnectionError as error:
        raise _unreachable(address, "something listens there that does not answer as Ray does") from error


def _unreachable(address: str, reason: str) -> UserError:
    return UserError(
        "--address",
        given=address,
        expected="the address of a running Ray cluster",
        fix=f"start one with `ray start --head`, or leave the address out to run here ({reason})",
    )
