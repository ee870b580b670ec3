"""`ray up`, `ray submit`, `ray rsync-down` and `ray down` with infra/cluster.yaml, as docs/clusters.md says."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from tests.hosts.clusters import TOKEN
from tests.hosts.machines_by_ssh import check_programs, copy_repository, make_environment, make_key, open_to_ssh
from tests.hosts.namespaces import Host, Network
from tests.infra.test_clusters import CLUSTER

pytestmark = [pytest.mark.ray, pytest.mark.scale, pytest.mark.timeout(1500)]
CLIENT = 4
CONFIG = "infra/cluster.yaml"
# Three hosts are on one machine; nothing else differs from the document.
SMALL = (
    "export RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES=80000000 RAY_USAGE_STATS_ENABLED=0 RAY_DISABLE_IMPORT_WARNING=1\n"
)
RUN = "run quickstart --trials 8 --replicates 4 --set n_steps=1000 --pack-size 4 --trainers 3 --dir /root/sweeps/first"


class Laptop:
    """The user's own machine, on which the repository is.

    Args:
        host: The machine.
        cluster: Those that it reaches.
    """

    def __init__(self, host: Host, cluster: Sequence[Host]) -> None:
        self._host, self.cluster = host, cluster
        self.repository = copy_repository(host)

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
    *cluster, client = network.hosts.values()
    found = Laptop(client, cluster)
    (found.repository / CONFIG).write_text(text.replace("ssh_user: USER", "ssh_user: root"))
    yield found
    for host in network.hosts.values():
        host.end()


def _wait_for_nodes(laptop: Laptop, number: int, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        said = laptop.ray("exec", CONFIG, "ray status")
        if sum(map(int, re.findall(r"^ (\d+) local\.cluster\.node\b", said, re.MULTILINE))) == number:
            return
        # Each question is a login and a process of Ray.
        threading.Event().wait(5)
    pytest.fail(f"{number} nodes did not come within {seconds:g} s:\n{said}")


def test_from_up_to_down(laptop: Laptop) -> None:
    laptop.ray("get-auth-token", "--generate")
    laptop.ray("up", "--yes", CONFIG)
    _wait_for_nodes(laptop, 3)
    laptop.ray("submit", CONFIG, "infra/ray_submit.py", "--", *RUN.split(), "--or-resume")
    laptop.ray("rsync-down", CONFIG, "/root/sweeps/first/", "first/")
    rows = Ledger(laptop.repository / "first").trainings()
    assert rows.num_rows == 32
    assert {*rows["host"].to_pylist()} == {"host1", "host2", "host3"}
    laptop.ray("down", "--yes", CONFIG)
    # On the head at once; on the workers once they have missed it for a minute.
    deadline = time.monotonic() + 180
    while any("raylet" in machine.run("bash", "-c", "cat /proc/[0-9]*/comm") for machine in laptop.cluster):
        assert time.monotonic() < deadline
        threading.Event().wait(2)
