"""The doctor on a cluster of hosts, each with a fault of its own: the line names the host."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.hosts.clusters import BIN, HEAD, HostedCluster
from tests.hosts.namespaces import Network

pytestmark = [pytest.mark.ray, pytest.mark.scale, pytest.mark.timeout(900)]
METADATA = "Metadata-Version: 2.1\nName: numpy\nVersion: 0.7\n"


def test_each_fault_is_a_line_that_names_its_host(new_network: Callable[[], Network]) -> None:
    cluster = HostedCluster(new_network(), MLFLOW_TRACKING_URI="sqlite:////srv/mlflow.db")
    cluster.start_head()
    for number in (2, 3):
        cluster.network.add(number)
        cluster.give_token(number)
    other = cluster.network.shared / "other" / "numpy-0.7.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text(METADATA)
    cluster.join([2], {"PYTHONPATH": "/srv/other"})
    cluster.host(3).run("mount", "-o", "remount,size=128m", "/dev/shm")
    libraries = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]
    cluster.join([3], {"LD_PRELOAD": str(libraries[0]), "FAKETIME": "+3600s"} if libraries else {})
    doctor = ["doctor", "--address", HEAD, "--dir", "/srv/s"]
    lines = (
        cluster.host(1).run(BIN / "attnsweep", *doctor, code=1, seconds=300, variables=cluster.variables).splitlines()
    )
    found = {line[6:15].strip(): line for line in lines if line.startswith(("ok ", "FAIL"))}
    faults = {name for name, line in found.items() if line.startswith("FAIL")}
    assert faults == {"code", "/dev/shm"} | ({"clocks"} if libraries else set()), lines
    numpy = f"host2: numpy {version('numpy')} -> 0.7; install the same environment there as here"
    assert found["code"] == f"FAIL  code       {numpy}"
    assert found["/dev/shm"].startswith("FAIL  /dev/shm   host3: 134 MB; mount a larger one")
    assert found["nodes"] == "ok    nodes      3: host1, host2, host3"
    if libraries:
        assert found["clocks"].startswith("FAIL  clocks     host3: 36")
