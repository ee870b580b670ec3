"""Run on a host: a cluster whose autoscaler begins without a worker, and a sweep that asks it for some.

Ray's own fake provider makes nodes as processes. Beware: it calls `ray stop`, which ends every Ray of a machine.
"""

import subprocess
import sys

from ray.cluster_utils import AutoscalingCluster

if __name__ == "__main__":
    worker = {"resources": {"CPU": 1, "object_store_memory": 80_000_000}, "node_config": {}}
    cluster = AutoscalingCluster(
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
