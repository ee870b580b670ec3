"""The Ray cluster that trains a sweep: either started on this machine, or one that is already running."""

import logging
import os
import re
import secrets
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import urlsplit

import ray
from ray.exceptions import AuthenticationError, RayError

from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.nodes import Node
from attnsweep.orchestrator.training.ray_internals import (
    ask_control_store,
    ask_for_token,
    control_store,
    has_token,
    starting_few_processes,
    starting_on_loopback,
    up_within,
    use_own_token,
)
from attnsweep.workloads.errors import UserError, in_words

_REACH_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
_LOOK_ANSWER_SECONDS = 1.0
_START_SECONDS, _PATIENT_START_SECONDS = 30.0, 120.0


@contextmanager
def connection(address: str | None) -> Iterator[bool]:
    """A context in which this process is connected to a Ray cluster: to the one at `address` or, without an address, to
    one that is started on this machine.

    A Ray that is started here ends with the context. A process that is already connected keeps its connection. Yields
    whether Ray was started here; if so, the cluster stays at this one node.

    Raises:
        UserError: If nothing answers at the address.
        PoolError: If Ray does not start here.
    """
    if address is None:
        is_ours = _start_here()
    else:
        is_ours = not ray.is_initialized()
        if is_ours:
            _check_reachable(address)
            try:
                _initialize(address)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise _unreachable(address, str(error).splitlines()[0]) from error
    if not is_ours:
        yield False
        return
    try:
        yield address is None
    finally:
        # `ray.shutdown` does nothing if Ray has already ended.
        ray.shutdown()


def _start_here() -> bool:
    """In two attempts; false if this process is already connected."""
    if ray.is_initialized():
        return False
    # Versions of Ray before 2.59 use authentication tokens only if the environment asks for them.
    ask_for_token()
    _keep_token_elsewhere()
    for seconds in (_START_SECONDS, _PATIENT_START_SECONDS):
        try:
            with starting_on_loopback(), starting_few_processes(), up_within(seconds):
                _initialize("local")
        except Exception as error:  # noqa: BLE001  # Ray raises errors of many types, also plain `Exception`.
            reason = in_words(error)
            ray.shutdown()
        else:
            return True
    raise PoolError(
        f"Ray did not start on this machine in two attempts, the second of {_PATIENT_START_SECONDS:g} s ({reason}); "
        "check memory, disk and load, then try again; Ray's logs are in /tmp/ray/session_latest/logs"
    )


def _keep_token_elsewhere() -> None:
    if has_token():
        return
    home = Path.home() / ".ray"
    try:
        home.mkdir(parents=True, exist_ok=True)
        # The check creates a temporary file, because permission bits alone do not tell whether a file can be created.
        with TemporaryFile(dir=home):
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

    Ray's processes inherit that schedulers' signals are blocked: sent to all processes of a job, they would kill those
    that train before the driver has asked for their state.
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


def usable_nodes() -> list[Node] | None:
    """The nodes that are up and that Ray will not soon remove, as it does reclaimed spot machines.

    Through a connection by `ray://`, Ray does not report which nodes it will remove; trainers there still get SIGTERM.

    `None` if the head did not answer.
    """
    client = control_store()
    if client is None:
        return [
            _as_node(node["NodeID"], node["NodeManagerHostname"], node["NodeManagerAddress"], node["Resources"])
            for node in ray.nodes()
            if node["Alive"]
        ]
    try:
        infos = client.get_all_node_info(timeout=_LOOK_ANSWER_SECONDS)
    except RayError:
        return None
    return [
        _as_node(node_id.hex(), info.node_manager_hostname, info.node_manager_address, info.resources_total)
        for node_id, info in infos.items()
        if info.state == info.ALIVE and info.state_snapshot.state != info.state_snapshot.DRAINING
    ]


def _as_node(node_id: str, host: str, address: str, resources: Mapping[str, float]) -> Node:
    return Node(node_id, host, address, resources.get("CPU", 0.0), resources.get("GPU", 0.0))


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
    try:
        socket.create_connection((host, port), timeout=_REACH_SECONDS).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error
    except UnicodeError as error:
        raise _unreachable(address, "the host name is not valid, so no machine can have it") from error
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
        expected = "a Ray cluster that accepts the token of this process"
        fix = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the cluster's token unless in ~/.ray/auth_token"
        raise UserError("--address", given=address, expected=expected, fix=fix) from error
    except ConnectionError as error:
        raise _unreachable(address, "a program listens at this address, but the program is not Ray") from error


def _unreachable(address: str, reason: str) -> UserError:
    fix = f"start one with `ray start --head`, or leave the address out to run here ({reason})"
    return UserError("--address", given=address, expected="the address of a running Ray cluster", fix=fix)
