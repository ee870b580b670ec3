"""Three hosts, each with a network of its own: one is cut off for a while, then one loses its power."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.run_records import PROGRESS
from tests.fault import sweeps
from tests.fault.servers import wait_until

BIN = Path(sys.executable).parent
HEAD = "10.77.0.1:6379"
NODE = ("--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats")
QUICK_TO_NOTICE = {"INITIAL_DELAY_MS": "0", "PERIOD_MS": "1000", "TIMEOUT_MS": "1000", "FAILURE_THRESHOLD": "8"}
"""A host is lost after 8 to 16 seconds of silence; by default after about a minute."""

pytestmark = [pytest.mark.ray, pytest.mark.scale, pytest.mark.timeout(600), pytest.mark.usefixtures("no_mlflow")]


def _network_of(pid: int | str) -> Path:
    return Path(f"/proc/{pid}/ns/net").readlink()


class Host:
    """A network in which commands run: without a number the switch, by which those with one reach each other."""

    def __init__(self, number: int = 0, switch: "Host | None" = None) -> None:
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        wait_until(lambda: _network_of(self._holder.pid) != _network_of("self"), "a network")
        self._network = _network_of(self._holder.pid)
        self._port, self._switch = f"port{number}", switch
        self.ip("link set lo up")
        if switch is None:
            self.ip("link add switch type bridge")
            self.ip("link set switch up")
            return
        switch.ip(f"link add {self._port} type veth peer name eth0 netns {self._holder.pid}")
        switch.ip(f"link set {self._port} master switch up")
        self.ip(f"addr add 10.77.0.{number}/24 dev eth0")
        self.ip("link set eth0 up")
        # Ray finds its own address by asking for the way to a public one; this way leads nowhere.
        self.ip("route add default via 10.77.0.254")

    def start(self, *command: str | Path, **variables: str) -> "subprocess.Popen[bytes]":
        words = ["nsenter", "--target", str(self._holder.pid), "--net", *map(str, command)]
        return subprocess.Popen(words, env=os.environ | variables, stdin=subprocess.DEVNULL)

    def ip(self, words: str) -> None:
        assert self.start("ip", *words.split()).wait() == 0, words

    def cut(self, state: str = "down") -> None:
        """Neither side hears that the other is gone."""
        assert self._switch is not None
        self._switch.ip(f"link set {self._port} {state}")

    def close(self) -> None:
        """Ends all processes in this network at once."""
        assert self._network != _network_of("self")
        for pid in psutil.pids():
            with suppress(OSError):
                if _network_of(pid) == self._network:
                    os.kill(pid, signal.SIGKILL)
        self._holder.wait()


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Host]]:
    """A Ray cluster of three hosts with one core each, of which the first is the head."""
    tried = ["unshare", "--net", "ip", "link", "add", "switch", "type", "bridge"]
    if subprocess.run(tried, capture_output=True, check=False).returncode != 0:
        pytest.skip("networks are refused here: they are made by root, with util-linux and iproute2")
    # Not pytest's own folder: Ray's socket paths must fit into 107 bytes.
    home = tempfile.mkdtemp(prefix="attnsweep-", dir="/tmp")
    variables = {f"RAY_health_check_{name.lower()}": value for name, value in QUICK_TO_NOTICE.items()}
    with ExitStack() as ending, pytest.MonkeyPatch.context() as environment:
        ending.callback(shutil.rmtree, home, ignore_errors=True)
        environment.setenv("RAY_AUTH_MODE", "token")
        environment.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        switch = ending.enter_context(closing(Host()))
        found = [ending.enter_context(closing(Host(number, switch))) for number in (1, 2, 3)]
        start = (BIN / "ray", "start", *NODE)
        head = ("--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={home}")
        assert found[0].start(*start, *head, **variables).wait() == 0
        for worker in found[1:]:
            assert worker.start(*start, f"--address={HEAD}").wait() == 0
        yield found


def test_a_cut_network_and_a_power_cut_lose_nothing(hosts: list[Host], tmp_path: Path) -> None:
    spec = sweeps.long_sweep(trials=24, space={**sweeps.long_sweep().space, "n_steps": 6_000})
    sweeps.run(spec, tmp_path / "undisturbed", pack_size=4)
    (tmp_path / "spec.json").write_text(spec.to_json())
    path = tmp_path / "s"
    words: list[str | Path] = [
        "run",
        tmp_path / "spec.json",
        "--dir",
        path,
        "--address",
        HEAD,
        "--trainers",
        "3..3",
        "--pack-size",
        "4",
    ]
    driver = hosts[0].start(BIN / "attnsweep", *words, "--engine", "eager", "--no-report")

    def are_training() -> bool:
        found = PROGRESS.read_if_sound(path) if path.exists() else None
        assert driver.poll() is None
        return found is not None and len(found.packs) == 3 and all(pack.step > 0 for pack in found.packs)

    wait_until(are_training, "three packs to train")
    hosts[2].cut()
    threading.Event().wait(5)
    hosts[2].cut("up")
    wait_until(are_training, "three packs to train again")
    hosts[2].cut()
    hosts[2].close()
    assert driver.wait(300) == 0
    assert len(Ledger(path).trainings()) == 48
    assert sweeps.outcomes(path) == sweeps.outcomes(tmp_path / "undisturbed")
    assert sweeps.curves(path) == sweeps.curves(tmp_path / "undisturbed")
