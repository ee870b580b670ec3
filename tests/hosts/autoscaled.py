"""Run on a host: a cluster whose autoscaler begins without a worker, and a sweep that asks it for some.

Ray's own fake provider makes nodes as processes. Beware: it calls `ray stop`, which ends every Ray of a machine.
"""

import subprocess
import sys
from typing import Any

from ray.cluster_utils import AutoscalingCluster

PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
HEAD_ID = "f" * 51 + "00000"
LISTS = ["initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands", "rsync_exclude"]
LISTS += ["rsync_filter", "head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files"]


class Growing(AutoscalingCluster):
    """The same, with the settings that Ray's wheel lacks the file of."""

    def _generate_config(
        self, head_resources: Any, worker_node_types: Any, autoscaler_v2: Any = True, **config_kwargs: Any
    ) -> Any:
        del autoscaler_v2, config_kwargs
        head = {"resources": head_resources, "node_config": {}, "max_workers": 0}
        provider = {"type": "external", "module": PROVIDER, "launch_multiple": True, "head_node_id": HEAD_ID}
        provider |= dict.fromkeys(["use_node_id_as_ip", "disable_node_updaters", "disable_launch_config_check"], True)
        return {
            "cluster_name": "growing",
            "max_workers": 8,
            "upscaling_speed": 10,
            "idle_timeout_minutes": 5,
            "provider": provider,
            "available_node_types": worker_node_types | {"ray.head.default": head},
            "head_node_type": "ray.head.default",
            **{name: {} for name in ("docker", "auth", "file_mounts")},
            **{name: [] for name in LISTS},
        }


if __name__ == "__main__":
    worker = {"resources": {"CPU": 1, "object_store_memory": 80_000_000}, "node_config": {}}
    cluster: AutoscalingCluster = Growing(
        head_resources={"CPU": 0, "object_store_memory": 80_000_000},
        worker_node_types={"worker": worker | {"min_workers": 0, "max_workers": 2}},
        autoscaler_v2=True,
    )
    cluster.start()
    try:
        ended = subprocess.run(["attnsweep", *sys.argv[1:]], check=False)
    finally:
        cluster.shutdown()
    sys.exit(ended.returncode)
