"""A real cluster of several nodes on this machine, for the modules that need one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.rays import SHARED_RAYS

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

_WITHOUT_LOGS = {"include_log_monitor": False}
"""Nobody reads what workers print, so no process of a node's own has to collect it."""
NODE: dict[str, Any] = {"num_cpus": 1, **_WITHOUT_LOGS}
"""A node for one trainer."""
_QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}
_HEAD = {
    "num_cpus": 0,
    "include_dashboard": False,
    "no_monitor": True,
    "_system_config": _QUICK_TO_NOTICE,
    **_WITHOUT_LOGS,
}


@pytest.fixture(scope="session")
def _head() -> "Cluster":
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=_HEAD)
    SHARED_RAYS.callback(cluster.shutdown)
    return cluster


@pytest.fixture(scope="module")
def empty_cluster(no_mlflow: None, _head: "Cluster") -> "Iterator[Cluster]":
    """A head without cores, to which this process is connected. The nodes that a module adds end with it."""
    del no_mlflow
    import ray

    ray.shutdown()
    ray.init(address=_head.address, log_to_driver=False)
    yield _head
    ray.shutdown()
    for node in list(_head.worker_nodes):
        _head.remove_node(node)
