"""A host loses its power, or its network for a while: the sweep ends with the rows of an undisturbed one."""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from tests.fault import sweeps
from tests.hosts.clusters import BIN, HEAD, QUICK_TO_NOTICE, HostedCluster
from tests.hosts.drivers import Driver, committed, packs_under_way
from tests.hosts.namespaces import Network

pytestmark = [pytest.mark.ray, pytest.mark.scale, pytest.mark.timeout(900)]
SLOW = Path(__file__).with_name("slow.py")


@pytest.fixture(scope="module")
def cluster(new_network: Callable[[], Network]) -> HostedCluster:
    network = new_network()
    shutil.copy(SLOW, network.shared)
    cluster = HostedCluster(network, QUICK_TO_NOTICE, MLFLOW_TRACKING_URI="sqlite:////srv/mlflow.db", NAP="0.05")
    cluster.start_head()
    cluster.start_workers((2, 3))
    return cluster


@pytest.fixture(scope="module")
def undisturbed(new_network: Callable[[], Network]) -> Path:
    """The sweep on one host, without Ray."""
    network = new_network()
    shutil.copy(SLOW, network.shared)
    host = network.add(1)
    here = {"MLFLOW_TRACKING_URI": "sqlite:////srv/mlflow.db"}
    host.run(BIN / "attnsweep", "run", "/srv/slow.py", "--local", "--no-report", "--dir", "/srv/s", variables=here)
    host.end()
    return network.shared / "s"


class _Run(Driver):
    """The sweep on a cluster, from host 1, into a folder that all share."""

    def __init__(self, cluster: HostedCluster, name: str) -> None:
        self._cluster, self._directory = cluster, f"/srv/{name}"
        self.path = cluster.network.shared / name
        words = ["run", "/srv/slow.py", "--dir", self._directory, "--address", HEAD, "--pack-size", "4", "--no-report"]
        super().__init__(cluster.start(1, "attnsweep", *words))

    def assert_undisturbed(self, undisturbed: Path) -> set[str]:
        """It ends, with the rows of an undisturbed one; returns the hosts that trained."""
        assert self.wait() == 0, self.said
        assert sweeps.outcomes(self.path) == sweeps.outcomes(undisturbed)
        assert sweeps.curves(self.path) == sweeps.curves(undisturbed)
        assert self._cluster.run(1, "attnsweep", "audit", self._directory).splitlines()[-1] == "clean"
        return {*Ledger(self.path).trainings()["host"].to_pylist()}


def test_a_short_cut_of_the_network_is_survived(cluster: HostedCluster, undisturbed: Path) -> None:
    run = _Run(cluster, "short_cut")
    packs = packs_under_way(run.path, 3)
    fault = time.monotonic()
    cluster.host(3).cut()
    threading.Event().wait(5)
    cluster.host(3).heal()
    committed(run.path, packs, fault)
    assert run.assert_undisturbed(undisturbed) == {"host1", "host2", "host3"}
    assert "left the cluster" not in run.said


def test_a_power_cut(cluster: HostedCluster, undisturbed: Path) -> None:
    run = _Run(cluster, "power_cut")
    packs = packs_under_way(run.path, 3)
    began = time.monotonic()
    cluster.host(3).power_off()
    run.hear("left the cluster: host3")
    committed(run.path, packs, began)
    run.assert_undisturbed(undisturbed)
