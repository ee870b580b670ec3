"""A sweep on three hosts: each trains a part of it, and the rows are those of one host, to the last bit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.search_spaces.loading import load_sweep
from tests.fault import sweeps
from tests.hosts.clusters import HEAD, HostedCluster
from tests.hosts.namespaces import Network

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
RUN = ["run", "quickstart", "--trials", "8", "--replicates", "4", "--set", "n_steps=1000", "--pack-size", "4", "--json"]


@pytest.fixture(scope="module")
def three_hosts(new_network: Callable[[], Network]) -> HostedCluster:
    """A head and two workers."""
    cluster = HostedCluster(new_network(), MLFLOW_TRACKING_URI="sqlite:////dev/null/mlflow.db")
    cluster.start_head()
    cluster.start_workers([2, 3])
    return cluster


@pytest.fixture(scope="module")
def on_one_host(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same sweep, trained in this process."""
    del no_mlflow
    path = tmp_path_factory.mktemp("on_one_host") / "sweep"
    sweeps.run(load_sweep("quickstart").but(trials=8, replicates=4).fix({"n_steps": 1000}), path)
    return path


def _assert_spread(said: str, path: Path, on_one_host: Path) -> None:
    assert _summary(said)["trainings"] == 32
    assert {*Ledger(path).trainings()["host"].to_pylist()} == {"host1", "host2", "host3"}
    assert sweeps.outcomes(path) == sweeps.outcomes(on_one_host)
    assert sweeps.curves(path) == sweeps.curves(on_one_host)


def _summary(said: str) -> dict[str, Any]:
    (line,) = [line for line in said.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(line)
    return found


def test_by_the_clusters_address(three_hosts: HostedCluster, on_one_host: Path) -> None:
    said = three_hosts.run(1, "attnsweep", *RUN, "--dir", "/srv/by_address", "--address", HEAD, seconds=200)
    _assert_spread(said, three_hosts.network.shared / "by_address", on_one_host)


@pytest.mark.scale
def test_as_a_job(three_hosts: HostedCluster, on_one_host: Path) -> None:
    job = [
        "job",
        "submit",
        "--log-color",
        "false",
        "--",
        "/opt/attnsweep/bin/attnsweep",
        *RUN,
        "--dir",
        "/srv/as_a_job",
    ]
    server = {"RAY_API_SERVER_ADDRESS": "http://127.0.0.1:8265"}
    said = three_hosts.run(1, "ray", *job, seconds=250, variables=server)
    _assert_spread(said, three_hosts.network.shared / "as_a_job", on_one_host)
    assert three_hosts.run(1, "attnsweep", "audit", "/srv/as_a_job").splitlines()[-1] == "clean"
