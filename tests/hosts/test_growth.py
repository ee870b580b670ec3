"""Clusters that grow from nothing, and hosts that cannot train, each as a user meets them."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from tests.hosts.clusters import BIN, HEAD, TOKEN, HostedCluster
from tests.hosts.drivers import Driver
from tests.hosts.namespaces import Network

pytestmark = [pytest.mark.ray, pytest.mark.scale, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
BROKEN = "libcudart.so.12: cannot open shared object file"
MLFLOW = {"MLFLOW_TRACKING_URI": "sqlite:////srv/mlflow.db"}


def test_an_autoscaler_without_a_worker_hears_what_a_sweep_wants(new_network: Callable[[], Network]) -> None:
    network = new_network()
    for name in ("slow.py", "autoscaled.py"):
        shutil.copy(HERE / name, network.shared)
    host = network.add(1)
    host.run("bash", "-c", f"umask 077 && {BIN}/ray get-auth-token --generate", variables=TOKEN)
    words = ["run", "/srv/slow.py", "--no-report", "--dir", "/srv/s", "--address", "auto", "--trainers", "2"]
    variables = TOKEN | MLFLOW | {"PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin", "RAY_USAGE_STATS_ENABLED": "0"}
    said = host.run(BIN / "python", "/srv/autoscaled.py", *words, seconds=500, variables=variables)
    assert "2 more trainers are requested from Ray; they start when nodes with room for them join" in said
    assert re.search("^joined the cluster: host1", said, re.MULTILINE)
    assert Ledger(network.shared / "s").trainings().num_rows == 32


@pytest.fixture
def cluster(new_network: Callable[[], Network]) -> HostedCluster:
    """A cluster yet to be started."""
    network = new_network()
    shutil.copy(HERE / "slow.py", network.shared)
    return HostedCluster(network, None, **MLFLOW, NAP="0.05")


@pytest.fixture
def with_broken_torch(cluster: HostedCluster) -> dict[str, str]:
    """The environment of a host whose PyTorch cannot be imported."""
    broken = cluster.network.shared / "broken" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text(f"raise ImportError({BROKEN!r})\n")
    return {"PYTHONPATH": "/srv/broken"}


# Three trainers fail to start on a host before it is given up, which takes less than these 48 seconds.
RUN = ["run", "/srv/slow.py", "--set", "n_steps=120", "--no-report", "--dir", "/srv/s", "--address", HEAD]
RUN += ["--pack-size", "4"]


def test_a_host_with_a_broken_library_is_named(cluster: HostedCluster, with_broken_torch: dict[str, str]) -> None:
    cluster.start_head()
    cluster.network.add(2)
    cluster.give_token(2)
    cluster.join([2], with_broken_torch)
    said = cluster.run(1, "attnsweep", *RUN, seconds=500)
    (line,) = [line for line in said.splitlines() if "not used" in line]
    assert line == f"host host2 is not used: no trainer starts there: ImportError: {BROKEN}"
    assert {*Ledger(cluster.network.shared / "s").trainings()["host"].to_pylist()} == {"host1"}


def test_where_no_host_can_train_the_sweep_says_why_and_can_be_continued(
    cluster: HostedCluster, with_broken_torch: dict[str, str]
) -> None:
    cluster.start_head(with_broken_torch)
    cluster.network.add(2)
    cluster.give_token(2)
    cluster.join([2], with_broken_torch)
    run = Driver(cluster.start(1, "attnsweep", *RUN))
    assert run.wait() == 1
    (line,) = [line for line in run.said.splitlines() if "no node of the cluster can train" in line]
    for host in ("host1", "host2"):
        assert f"host {host}: no trainer starts there: ImportError: {BROKEN}" in line
    assert "once the cause is fixed, continue with: attnsweep resume /srv/s" in run.said
