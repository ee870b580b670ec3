"""The private names of Ray that we use, checked at import, because another version may lack them."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import ray
from ray.exceptions import AuthenticationError

from attnsweep.workloads.errors import UserError

TESTED = "2.60"

_CONTROL_STORE_WAIT = "RAY_gcs_server_port_wait_time_s"
_NODE_LOOK_SECONDS = 0.02
_ARE_YOU_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_VITAL = frozenset({"gcs_server", "raylet"})

try:
    from ray._private import grpc_utils, ray_constants, worker
    from ray._private import node as ray_node
    from ray._private import services as ray_services
    from ray._private import utils as ray_utils
    from ray._raylet import Config, GcsClient  # type: ignore[attr-defined]

    _NEEDED = (
        grpc_utils.init_grpc_channel,
        ray_node.Node.start_api_server,
        ray_node.Node.start_log_monitor,
        ray_node.Node.start_monitor,
        ray_constants.ENABLE_RAY_CLUSTER,
        ray_services.get_node,
        ray_utils.get_dashboard_dependency_error,
        worker.global_worker,
        worker._global_node,
        Config.initialize,
        GcsClient,
    )
except (ImportError, AttributeError) as error:
    expected = f"a Ray version from 2.58 to {TESTED}, which attnsweep was tested with ({error})"
    fix = f"install a tested version with: pip install 'ray[default]=={TESTED}.*'"
    raise UserError("ray", given=f"Ray version {ray.__version__}", expected=expected, fix=fix) from error


@contextmanager
def starting_on_loopback() -> Iterator[None]:
    """A context for starting Ray so that it listens only on the loopback interface, as it does by default on macOS.

    On Linux, Ray listens on every network, and replaces an address of 127.0.0.1 with the network's.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def starting_few_processes() -> Iterator[None]:
    """Starts Ray without its dashboard, its autoscaler and its copying of logs to the driver.

    By default Ray starts these processes even if they have nothing to do, and waits for the dashboard. The dashboard's
    agent on this node, without which Ray does not run, then serves no web pages.
    """
    methods = {
        name: getattr(ray_node.Node, name) for name in ("start_api_server", "start_log_monitor", "start_monitor")
    }
    look = ray_utils.get_dashboard_dependency_error
    for name in methods:
        setattr(ray_node.Node, name, lambda *_, **__: None)
    ray_utils.get_dashboard_dependency_error = lambda: ImportError("not wanted")
    try:
        yield
    finally:
        for name, start in methods.items():
            setattr(ray_node.Node, name, start)
        ray_utils.get_dashboard_dependency_error = look


@contextmanager
def up_within(seconds: float) -> Iterator[None]:
    """The control store gets this many seconds to start, and then this machine's node.

    By default Ray waits 30 s for each; it has a setting for the control store only. It looks for the node once a
    second.
    """
    look = ray_services.get_node

    def get_node(address: str, node: str) -> object:
        deadline, store = time.monotonic() + seconds, GcsClient(address=address)
        while all(each.hex() != node for each in store.get_all_node_info(timeout=seconds)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"Ray's node on this machine did not start within {seconds:g} s")
            time.sleep(_NODE_LOOK_SECONDS)
        return look(address, node)  # type: ignore[no-untyped-call]

    ray_services.get_node = get_node
    before = os.environ.get(_CONTROL_STORE_WAIT)
    os.environ.setdefault(_CONTROL_STORE_WAIT, f"{seconds:.0f}")
    try:
        yield
    finally:
        ray_services.get_node = look
        if before is None:
            del os.environ[_CONTROL_STORE_WAIT]


def ask_control_store(address: str, seconds: float) -> None:
    """Checks that a control store answers. `ray.init` would try for minutes before it fails.

    Raises:
        AuthenticationError: If it is a control store that requires another token than this process has.
        ConnectionError: If nothing at the address answers as Ray does.
    """
    # The connection does not use web proxies, because a proxy cannot reach the inner network of a cluster.
    with grpc_utils.init_grpc_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            # The request has no content: the empty bytes are an empty protobuf message.
            channel.unary_unary(_ARE_YOU_ALIVE)(b"", timeout=seconds)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                raise AuthenticationError(error.details()) from error
            raise ConnectionError(error.details()) from error


def use_own_token() -> bool:
    """From now on, this process sends the user's Ray token, if any, unless `RAY_AUTH_MODE` is set.

    A Ray that another program has started here requires the token, although nothing in the environment says so.

    Returns whether a token is sent.
    """
    if has_token():
        ask_for_token()
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


def ask_for_token() -> None:
    """A Ray that this process starts demands a token, unless `RAY_AUTH_MODE` is set."""
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        # Ray read the environment variables when it was imported, before `RAY_AUTH_MODE` was set here. So its
        # configuration is initialized again.
        Config.initialize("")


def has_token() -> bool:
    """In the environment or in the user's home."""
    in_environment = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    return in_environment or os.access(Path.home() / ".ray" / "auth_token", os.R_OK)


def control_store() -> Any | None:
    """The client of the control store (GCS), which knows all nodes; `None` through `ray://`."""
    return getattr(worker.global_worker, "gcs_client", None)


def dead_process() -> str | None:
    """The name of an essential Ray process here that has died; `None` if none has or Ray was not started here."""
    node = worker._global_node
    dead: set[str] = set() if node is None else {kind for kind, _ in node.dead_processes()}
    return next(iter(dead & _VITAL), None)
