"""A real cluster of several nodes on this machine, for the modules that need one."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.rays import SHARED_RAYS

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

NODE: dict[str, Any] = {"num_cpus": 1, "include_log_monitor": False}
"""A node for one trainer."""
_QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}
_HEAD = NODE | {"num_cpus": 0, "include_dashboard": False, "no_monitor": True, "_system_config": _QUICK_TO_NOTICE}


@pytest.fixture(scope="module")
def cluster(no_mlflow: None) -> "Cluster":
    """A head without cores, to which this process is connected."""
    del no_mlflow
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args=_HEAD)
    SHARED_RAYS.callback(cluster.shutdown)
    ray.init(address=cluster.address, log_to_driver=False)
    SHARED_RAYS.callback(ray.shutdown)
    return cluster
