"""A sweep on several hosts: each trains a part of it, and the rows are those of one host, to the last bit."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.search_spaces.loading import load_sweep
from tests.fault import sweeps
from tests.hosts.clusters import HEAD, HostedCluster
from tests.hosts.namespaces import Network

pytestmark = [pytest.mark.ray, pytest.mark.scale, pytest.mark.timeout(900)]
SLOW = Path(__file__).with_name("slow.py")
N_STEPS = 60
OUT_OF_REACH = "sqlite:////dev/null/mlflow.db"
RUN = ["run", "/srv/slow.py", "--no-report", "--set", f"n_steps={N_STEPS}", "--pack-size", "4", "--json"]


def _hosts(network: Network, workers: Sequence[int], *, takes_jobs: bool, mlflow: str) -> HostedCluster:
    """A head and workers. A pack lasts for seconds, so that no host trains all before another has begun."""
    shutil.copy(SLOW, network.shared)
    cluster = HostedCluster(network, MLFLOW_TRACKING_URI=mlflow, NAP="0.05")
    cluster.start_head(takes_jobs=takes_jobs)
    cluster.start_workers(workers)
    return cluster


@pytest.fixture(scope="module")
def on_one_host(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same sweep, trained in this process without naps."""
    del no_mlflow
    folder = tmp_path_factory.mktemp("on_one_host")
    file = folder / "slow.py"
    file.write_text(SLOW.read_text().replace("/srv/slow.py", str(file)))
    sweeps.run(load_sweep(str(file)).fix({"n_steps": N_STEPS}), folder / "sweep")
    return folder / "sweep"


def _assert_spread(said: str, path: Path, hosts: set[str], on_one_host: Path) -> None:
    assert _summary(said)["trainings"] == 32
    assert {*Ledger(path).trainings()["host"].to_pylist()} == hosts
    assert sweeps.outcomes(path) == sweeps.outcomes(on_one_host)
    assert sweeps.curves(path) == sweeps.curves(on_one_host)


def _summary(said: str) -> dict[str, Any]:
    (line,) = [line for line in said.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(line)
    return found


def test_by_the_clusters_address(new_network: Callable[[], Network], on_one_host: Path) -> None:
    cluster = _hosts(new_network(), [2, 3], takes_jobs=False, mlflow=OUT_OF_REACH)
    said = cluster.run(1, "attnsweep", *RUN, "--dir", "/srv/by_address", "--address", HEAD, seconds=200)
    _assert_spread(said, cluster.network.shared / "by_address", {"host1", "host2", "host3"}, on_one_host)


def test_as_a_job(new_network: Callable[[], Network], on_one_host: Path) -> None:
    three_hosts = _hosts(new_network(), [2, 3], takes_jobs=True, mlflow="sqlite:////srv/mlflow.db")
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
    _assert_spread(said, three_hosts.network.shared / "as_a_job", {"host1", "host2", "host3"}, on_one_host)
    # A sweep waits for one minute for MLflow, which may not do on a busy machine.
    three_hosts.run(1, "attnsweep", "mlflow-sync", "/srv/as_a_job")
    assert three_hosts.run(1, "attnsweep", "audit", "/srv/as_a_job").splitlines()[-1] == "clean"
