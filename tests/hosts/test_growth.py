"""Clusters that grow from nothing, and hosts that cannot train, each as a user meets them."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from tests.hosts.clusters import BIN, HEAD, TOKEN, HostedCluster
from tests.hosts.namespaces import Network

pytestmark = [pytest.mark.ray, pytest.mark.scale, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
MLFLOW = {"MLFLOW_TRACKING_URI": "sqlite:////srv/mlflow.db"}


def test_an_autoscaler_without_a_worker_hears_what_a_sweep_wants(new_network: Callable[[], Network]) -> None:
    network = new_network()
    for name in ("slow.py", "autoscaled.py"):
        shutil.copy(HERE / name, network.shared)
    host = network.add(1)
    host.run("bash", "-c", f"umask 077 && {BIN}/ray get-auth-token --generate", variables=TOKEN)
    words = ["run", "/srv/slow.py", "--dir", "/srv/s", "--address", "auto", "--trainers", "2"]
    variables = TOKEN | MLFLOW | {"PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin", "RAY_USAGE_STATS_ENABLED": "0"}
    said = host.run(BIN / "python", "/srv/autoscaled.py", *words, seconds=500, variables=variables)
    assert "2 more trainers are asked of Ray; they start once nodes for them come" in said
    assert re.search("^joined the cluster: host1", said, re.MULTILINE)
    assert Ledger(network.shared / "s").trainings().num_rows == 32


def test_a_host_with_a_broken_library_is_named(new_network: Callable[[], Network]) -> None:
    cluster = HostedCluster(new_network(), None, **MLFLOW, NAP="0.05")
    shutil.copy(HERE / "slow.py", cluster.network.shared)
    broken = cluster.network.shared / "broken" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')\n")
    cluster.start_head()
    cluster.network.add(2)
    cluster.give_token(2)
    cluster.join([2], {"PYTHONPATH": "/srv/broken"})
    said = cluster.run(
        1, "attnsweep", "run", "/srv/slow.py", "--dir", "/srv/s", "--address", HEAD, "--pack-size", "4", seconds=500
    )
    (line,) = [line for line in said.splitlines() if "not used" in line]
    cause = "ImportError: libcudart.so.12: cannot open shared object file"
    assert line == f"host host2 is not used: no trainer starts there: {cause}"
    assert {*Ledger(cluster.network.shared / "s").trainings()["host"].to_pylist()} == {"host1"}
