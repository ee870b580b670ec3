"""What attnsweep needs of Ray beyond its public names: looked up at import, as another version may lack it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from attnsweep.workloads.errors import UserError

TESTED = "2.60"

try:
    from ray._private import ray_constants, worker
    from ray._private import utils as ray_utils

    _NEEDED = (ray_constants.ENABLE_RAY_CLUSTER, ray_utils.set_sigterm_handler, worker.global_worker)
except (ImportError, AttributeError) as error:
    raise UserError(
        "ray",
        given=f"version {ray.__version__}",
        expected=f"version {TESTED}, with which attnsweep was tested ({error})",
        fix=f"pip install 'ray[default]=={TESTED}.*'",
    ) from error


@contextmanager
def starting_on_loopback() -> Iterator[None]:
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
def keeping_sigterm() -> Iterator[None]:
    """A program's own answer to SIGTERM outlives Ray's start, which would set one that exits at once."""
    set_handler = ray_utils.set_sigterm_handler
    if callable(signal.getsignal(signal.SIGTERM)):
        ray_utils.set_sigterm_handler = lambda _: None
    try:
        yield
    finally:
        ray_utils.set_sigterm_handler = set_handler


def control_store() -> Any | None:
    """The client of the cluster's control store, which knows its nodes; `None` through `ray://`."""
    return getattr(worker.global_worker, "gcs_client", None)
