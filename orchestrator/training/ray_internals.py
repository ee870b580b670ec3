"""The private names of Ray that we use, checked at import, because another version may lack them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from attnsweep.workloads.errors import UserError

TESTED = "2.60"

try:
    from ray._private import ray_constants
    from ray._raylet import Config  # type: ignore[attr-defined]

    _NEEDED = (ray_constants.ENABLE_RAY_CLUSTER, Config.initialize)
except (ImportError, AttributeError) as error:
    expected = f"a Ray version from 2.57 to {TESTED}, which attnsweep was tested with ({error})"
    fix = f"install a tested version with: pip install 'ray[default]=={TESTED}.*'"
    raise UserError("ray", given=f"Ray version {ray.__version__}", expected=expected, fix=fix) from error


@contextmanager
def starting_on_loopback() -> Iterator[None]:
    """Ray that is started inside listens only on the loopback interface, as by default on macOS. On Linux it would
    listen on every network, and replace an address of 127.0.0.1 with the network's."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def ask_for_token() -> None:
    """A Ray that this process starts demands a token, unless `RAY_AUTH_MODE` is set."""
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        # Versions before 2.59 read the variable only when they are imported.
        Config.initialize("")
