"""`ray up`, `ray submit`, `ray rsync-down` and `ray down` with infra/cluster.yaml, as docs/clusters.md says."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from tests.hosts.clusters import TOKEN
from tests.hosts.machines_by_ssh import check_programs, copy_repository, make_environment, make_key, open_to_ssh
from tests.hosts.namespaces import Host, Network
from tests.infra.test_cluster_yaml import CLUSTER

pytestmark = [pytest.mark.ray, pytest.mark.scale, pytest.mark.timeout(1500)]
CLIENT = 4
# Three hosts are on one machine; nothing else differs from the document.
SMALL = (
    "export RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES=80000000 RAY_USAGE_STATS_ENABLED=0 RAY_DISABLE_IMPORT_WARNING=1\n"
)
RUN = "run quickstart --trials 8 --replicates 4 --set n_steps=1000 --pack-size 4 --trainers 3 --dir /root/sweeps/first"


class Laptop:
    """The user's own machine, on which the repository is.

    Args:
        host: The machine.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    def ray(self, *words: str, seconds: float = 400) -> str:
        """A command of Ray, in the repository's root."""
        path = "/root/attnsweep-env/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        command = ["bash", "-c", 'cd /root/attnsweep && exec ray "$@"', "ray", *words]
        return self._host.run(*command, seconds=seconds, variables=TOKEN | {"PATH": path, "SHELL": "/bin/bash"})


@pytest.fixture
def laptop(new_network: Callable[[], Network], tmp_path: Path) -> Iterator[Laptop]:
    """Three machines that are reached by SSH, and the one that reaches them, with a filled-in cluster.yaml."""
    check_programs()
    network, key = new_network(), make_key(tmp_path)
    for number in (1, 2, 3, CLIENT):
        host = network.add(number)
        make_environment(host)
        open_to_ssh(host, key)
        host.path("/root/.bashrc").write_text(SMALL + host.path("/root/.bashrc").read_text())
    text = CLUSTER.read_text()
    for place, number in (("HEAD", 1), ("WORKER_1", 2), ("WORKER_2", 3)):
        text = text.replace(f"{place}_ADDRESS", network.hosts[number].address)
    repository = copy_repository(network.hosts[CLIENT])
    (repository / "infra" / "cluster.yaml").write_text(text.replace("ssh_user: USER", "ssh_user: root"))
    yield Laptop(network.hosts[CLIENT])
    for host in network.hosts.values():
        host.end()


def _wait_for_nodes(laptop: Laptop, number: int, seconds: float = 400) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        said = laptop.ray("exec", "infra/cluster.yaml", "ray status")
        if said.count(" local.cluster.node") == number:
            return said
    pytest.fail(f"{number} nodes did not come within {seconds:g} s:\n{said}")


def test_from_up_to_down(laptop: Laptop, tmp_path: Path, new_network: Callable[[], Network]) -> None:
    laptop.ray("get-auth-token", "--generate")
    laptop.ray("up", "--yes", "infra/cluster.yaml")
    _wait_for_nodes(laptop, 3)
    said = laptop.ray("submit", "infra/cluster.yaml", "infra/ray_submit.py", "--", *RUN.split(), "--or-resume")
    assert "trainings" in said
    laptop.ray("rsync-down", "infra/cluster.yaml", "/root/sweeps/first/", "first/")
    path = laptop._host.path("/root/attnsweep/first")
    assert {*Ledger(path).trainings()["host"].to_pylist()} == {"host1", "host2", "host3"}
    laptop.ray("down", "--yes", "infra/cluster.yaml")
