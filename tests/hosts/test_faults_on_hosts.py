"""What becomes of a sweep when hosts of its cluster fail: it ends with the rows of an undisturbed one."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from tests.fault import sweeps
from tests.hosts.clusters import BIN, HEAD, QUICK_TO_NOTICE, SMALL, HostedCluster
from tests.hosts.drivers import Driver, committed, packs_under_way
from tests.hosts.namespaces import Network

pytestmark = [pytest.mark.ray, pytest.mark.scale, pytest.mark.timeout(900)]
SLOW = Path(__file__).with_name("slow.py")
_MAKE_BUCKET = """
import boto3
from botocore.config import Config
boto3.client("s3", config=Config(retries={"total_max_attempts": 10})).create_bucket(Bucket="sweeps")
"""
_COPY_BUCKET = """
import pathlib, sys
import boto3
bucket = boto3.resource("s3").Bucket("sweeps")
for each in bucket.objects.all():
    path = pathlib.Path(sys.argv[1], each.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    bucket.download_file(each.key, str(path))
"""


def _new_cluster(network: Network, *workers: int, quick: bool = True) -> HostedCluster:
    shutil.copy(SLOW, network.shared)
    settings = QUICK_TO_NOTICE if quick else None
    cluster = HostedCluster(network, settings, MLFLOW_TRACKING_URI="sqlite:////srv/mlflow.db", NAP="0.05")
    cluster.start_head()
    cluster.start_workers(workers)
    return cluster


@pytest.fixture(scope="module")
def three_hosts(new_network: Callable[[], Network]) -> HostedCluster:
    """A cluster of three, on which a lost host is noticed soon."""
    return _new_cluster(new_network(), 2, 3)


@pytest.fixture
def cluster(three_hosts: HostedCluster) -> Iterator[HostedCluster]:
    """The same, whole again after each test."""
    yield three_hosts
    for number, host in [*three_hosts.network.hosts.items()]:
        if number > 3:
            host.end()
            del three_hosts.network.hosts[number]
    if not three_hosts.host(3).is_up:
        three_hosts.start_workers([3])


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

    def __init__(self, cluster: HostedCluster, name: str, *options: str) -> None:
        self._cluster, self._directory = cluster, f"/srv/{name}"
        self.path = cluster.network.shared / name
        words = ["run", "/srv/slow.py", "--dir", self._directory, "--address", HEAD, "--pack-size", "4", "--no-report"]
        super().__init__(cluster.start(1, "attnsweep", *words, *options))

    def assert_undisturbed(self, undisturbed: Path) -> set[str]:
        """It ends, with the rows of an undisturbed one; returns the hosts that trained."""
        assert self.wait() == 0, self.said
        return _assert_undisturbed(self._cluster, self._directory, undisturbed)


def _assert_undisturbed(cluster: HostedCluster, directory: str, undisturbed: Path, host: int = 1) -> set[str]:
    path = cluster.network.shared / Path(directory).name
    assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)
    assert sweeps.curves(path) == sweeps.curves(undisturbed)
    assert sweeps.told(path) == sweeps.told(undisturbed)
    assert cluster.run(host, "attnsweep", "audit", directory).splitlines()[-1] == "clean"
    return {*Ledger(path).trainings()["host"].to_pylist()}


def _report(fault: str, **seconds: float) -> None:
    """The figures of docs/faults.md, where a file is named for them."""
    if file := os.environ.get("ATTNSWEEP_FAULT_SECONDS"):
        rounded = {name: round(value, 1) for name, value in seconds.items()}
        with Path(file).open("a") as figures:
            figures.write(json.dumps({"fault": fault} | rounded) + "\n")


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def test_a_short_cut_of_the_network_is_survived(cluster: HostedCluster, undisturbed: Path) -> None:
    run = _Run(cluster, "short_cut")
    packs = packs_under_way(run.path, 3)
    fault = time.monotonic()
    cluster.host(3).cut()
    _wait(5)
    cluster.host(3).heal()
    recovered = committed(run.path, packs, fault)
    assert run.assert_undisturbed(undisturbed) == {"host1", "host2", "host3"}
    assert "left the cluster" not in run.said
    _report("network cut for 5 s", recovered=recovered)


def test_a_full_disk_of_a_worker(cluster: HostedCluster, undisturbed: Path) -> None:
    run = _Run(cluster, "full_disk")
    packs = packs_under_way(run.path, 3)
    fault = time.monotonic()
    fill = "cat /dev/zero > /tmp/ballast; df --output=avail /tmp | tail -1"
    assert cluster.host(3).run("bash", "-c", fill).split()[-1] == "0"
    recovered = committed(run.path, packs, fault)
    run.assert_undisturbed(undisturbed)
    cluster.host(3).run("rm", "/tmp/ballast")
    _report("disk of a worker full", recovered=recovered)


def test_a_host_that_joins_is_used(cluster: HostedCluster, undisturbed: Path) -> None:
    run = _Run(cluster, "joined", "--pack-size", "2")
    packs_under_way(run.path, 3)
    fault = time.monotonic()
    cluster.start_workers([4])
    noticed = run.hear("joined the cluster: host4") - fault
    assert "host4" in run.assert_undisturbed(undisturbed)
    _report("a host joins", noticed=noticed)


def test_a_clock_that_is_an_hour_off(cluster: HostedCluster, undisturbed: Path) -> None:
    libraries = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]
    if not libraries:
        pytest.skip("no libfaketime (Debian: apt-get install libfaketime)")
    cluster.network.add(4)
    cluster.give_token(4)
    faked = {"LD_PRELOAD": str(libraries[0]), "FAKETIME": "+3600s"}
    cluster.join([4], faked)
    run = _Run(cluster, "clock", "--pack-size", "2")
    assert "host4" in run.assert_undisturbed(undisturbed)
    rows = Ledger(run.path).trainings(columns=["host", "finished_at"]).to_pylist()
    last = {host: max(row["finished_at"] for row in rows if row["host"] == host) for host in ("host1", "host4")}
    assert (last["host4"] - last["host1"]).total_seconds() > 3000


def test_a_drained_host_hands_back_its_pack(cluster: HostedCluster, undisturbed: Path) -> None:
    run = _Run(cluster, "drained")
    packs = packs_under_way(run.path, 3)
    fault = time.monotonic()
    reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "the machine is taken away"]
    cluster.run(3, "ray", "drain-node", "--address", HEAD, *reason, "--deadline-remaining-seconds", "60")
    noticed = run.hear("left the cluster: host3") - fault
    recovered = committed(run.path, packs, fault)
    run.assert_undisturbed(undisturbed)
    cluster.host(3).end()
    _report("drained", noticed=noticed, recovered=recovered)


def test_a_host_cut_off_for_long_comes_back(cluster: HostedCluster, undisturbed: Path) -> None:
    """Ray declares it dead. Its supervisor, such as systemd, starts Ray again once the host finds out."""
    cluster.network.add(4)
    cluster.give_token(4)
    start = f"{BIN}/ray start --address={HEAD} --block {' '.join(SMALL)}"
    supervisor = cluster.start(4, "/bin/bash", "-c", f"while :; do {start}; sleep 1; done > /tmp/supervisor.log 2>&1")
    # Packs of one: enough of them for what takes longest, the host's return.
    run = _Run(cluster, "long_cut", "--wait-nodes", "4", "--pack-size", "1")
    packs = packs_under_way(run.path, 4, seconds=200)
    fault = time.monotonic()
    cluster.host(4).cut()
    _wait(45)
    cluster.host(4).heal()
    noticed = run.hear("left the cluster: host4") - fault
    back = run.hear("joined the cluster: host4", since=fault) - fault
    recovered = committed(run.path, packs, fault)
    # Its first pack was lost: what it has in the ledger, it trained after its return.
    assert "host4" in run.assert_undisturbed(undisturbed)
    cluster.host(4).end()
    supervisor.communicate()
    _report("network cut for 45 s", noticed=noticed, back=back, recovered=recovered)


def _assert_power_cut_costs_nothing(cluster: HostedCluster, undisturbed: Path, fault: str) -> None:
    run = _Run(cluster, "power_cut")
    packs = packs_under_way(run.path, 3)
    began = time.monotonic()
    cluster.host(3).power_off()
    noticed = run.hear("left the cluster: host3") - began
    recovered = committed(run.path, packs, began)
    run.assert_undisturbed(undisturbed)
    _report(fault, noticed=noticed, recovered=recovered)


def test_a_power_cut(cluster: HostedCluster, undisturbed: Path) -> None:
    _assert_power_cut_costs_nothing(cluster, undisturbed, "power cut, quick health checks")


def test_the_drivers_host_dies_while_the_directory_is_in_an_object_store(
    cluster: HostedCluster, undisturbed: Path
) -> None:
    """No other host has credentials for the store. The dead driver holds the sweep until its lease expires."""
    store = cluster.network.add(4)
    server = store.start("/bin/bash", "-c", f"exec {BIN}/moto_server -H {store.address} -p 9000 > /tmp/store.log 2>&1")
    credentials = {"AWS_ENDPOINT_URL": f"http://{store.address}:9000", "AWS_EC2_METADATA_DISABLED": "true"}
    credentials |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    cluster.run(1, "python", "-c", _MAKE_BUCKET, variables=credentials)
    command = ["run", "/srv/slow.py", "--dir", "s3://sweeps/s", "--address", HEAD, "--pack-size", "4", "--or-resume"]
    command.append("--no-report")
    run = Driver(cluster.start(3, "attnsweep", *command, variables=credentials))
    run.hear(r"trainings [1-9]\d*/32 ")
    for host in (1, 2):
        cluster.host(host).run("bash", "-c", "! grep -l AWS_SECRET /proc/[0-9]*/environ")
    fault = time.monotonic()
    cluster.host(3).power_off()
    run.wait()
    resumed = Driver(cluster.start(1, "attnsweep", *command, variables=credentials))
    resumed.hear("another process works on .*; waiting for up to 330 s")
    recovered = resumed.hear("found [1-9][0-9]* trainings", seconds=400) - fault
    assert resumed.wait() == 0, resumed.said
    said = cluster.run(1, "attnsweep", "audit", "s3://sweeps/s", variables=credentials)
    assert said.splitlines()[-1] == "clean"
    cluster.run(1, "python", "-c", _COPY_BUCKET, "/srv/copied", variables=credentials)
    assert sweeps.outcomes(cluster.network.shared / "copied" / "s") == sweeps.outcomes(undisturbed)
    assert sweeps.curves(cluster.network.shared / "copied" / "s") == sweeps.curves(undisturbed)
    store.end()
    server.communicate()
    _report("the driver's host killed, directory in an object store", recovered=recovered)


def test_the_head_dies_and_another_resumes(new_network: Callable[[], Network], undisturbed: Path) -> None:
    cluster = _new_cluster(new_network(), 2, 3)
    run = _Run(cluster, "head")
    committed(run.path, packs_under_way(run.path, 3)[:1], time.monotonic())
    fault = time.monotonic()
    cluster.host(1).power_off()
    run.wait()
    for number in (2, 3):
        cluster.run(number, "ray", "stop", "--force")
    cluster.start_head()
    cluster.join([2, 3])
    resumed = Driver(cluster.start(1, "attnsweep", "resume", "/srv/head", "--trust", "--address", HEAD))
    resumed.hear("found [1-9][0-9]* trainings")
    recovered = time.monotonic() - fault
    assert resumed.wait() == 0, resumed.said
    _assert_undisturbed(cluster, "/srv/head", undisturbed)
    _report("head killed, another resumes", recovered=recovered)


def test_a_power_cut_with_rays_own_health_checks(new_network: Callable[[], Network], undisturbed: Path) -> None:
    cluster = _new_cluster(new_network(), 2, 3, quick=False)
    _assert_power_cut_costs_nothing(cluster, undisturbed, "power cut, Ray's health checks")
