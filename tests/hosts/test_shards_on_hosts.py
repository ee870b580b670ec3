"""A sweep of two drivers on two hosts that do not see each other; one dies, and the other takes its shard over."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.fault import shards
from tests.hosts.clusters import BIN
from tests.hosts.drivers import Driver
from tests.hosts.namespaces import Network

pytestmark = [pytest.mark.scale, pytest.mark.timeout(900)]
HERE = {"MLFLOW_TRACKING_URI": "sqlite:////srv/mlflow.db"}


def test_a_hosts_shard_is_taken_over_by_another(new_network: Callable[[], Network]) -> None:
    network = new_network()
    shutil.copy(Path(__file__).with_name("slow.py"), network.shared)
    hosts = {number: network.add(number) for number in (1, 2)}
    command: list[str | Path] = [BIN / "attnsweep", "run", "/srv/slow.py", "--local", "--no-report", "--pack-size", "4"]
    hosts[1].run(*command, "--dir", "/srv/one", variables=HERE, seconds=300)

    def drive(number: int, shard: str) -> Driver:
        words: list[str | Path] = [*command, "--dir", "/srv/s", "--shard", shard, "--or-resume"]
        return Driver(hosts[number].start(*words, variables={**HERE, "NAP": "0.02"}))

    first, second = drive(1, "0/2"), drive(2, "1/2")
    second.hear(r"trainings [1-9]\d*/16 ")
    hosts[2].power_off()
    second.wait()
    assert first.wait() == 0, first.said
    path = network.shared / "s"
    assert SweepDirectory.open(path).shortfall == "of 2 shards, 1 not finished (1)"
    taken_over = drive(1, "1/2")
    taken_over.hear("found [1-9][0-9]* trainings")
    assert taken_over.wait() == 0, taken_over.said
    shards.assert_equal(path, network.shared / "one")
    assert {*Ledger(path).trainings()["host"].to_pylist()} == {"host1", "host2"}
    assert hosts[1].run(BIN / "attnsweep", "audit", "/srv/s", variables=HERE).splitlines()[-1] == "clean"
