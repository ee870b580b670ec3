"""The hosts themselves, without Ray: they are apart, reach each other, and can be cut off."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.clusters import BIN
from tests.hosts.namespaces import Host, Network, check_possible

# An address where nobody listens refuses at once; one that cannot be reached says nothing.
REACHES = "(exec 3<>/dev/tcp/host2/6379) 2>&1 | grep -q refused"


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Hosts 1 and 2."""
    check_possible()
    network = Network(tmp_path)
    try:
        yield network.add(1), network.add(2)
    finally:
        network.close()


def test_hosts_are_apart_and_reach_each_other_until_one_is_cut_off(
    two_hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    first, second = two_hosts
    assert [host.run("hostname") for host in two_hosts] == ["host1\n", "host2\n"]
    assert second.run(BIN / "attnsweep", "--version").startswith("attnsweep ")
    second.run("bash", "-c", "echo shared > /srv/note; echo own > /tmp/note")
    first.run("test", "-e", "/tmp/note", code=1)
    assert first.run("cat", "/srv/note") == (tmp_path / "note").read_text() == "shared\n"
    first.run("timeout", "5", "bash", "-c", REACHES)
    second.cut()
    first.run("timeout", "0.3", "bash", "-c", REACHES, code=124)
    second.heal()
    first.run("timeout", "5", "bash", "-c", REACHES)
    second.power_off()
    assert not second.is_up
