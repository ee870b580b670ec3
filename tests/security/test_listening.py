"""A running sweep on this machine: who can connect, who is allowed to, and that no process outlives it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from tests.fault.servers import wait_until

BIN = Path(sys.executable).parent
SECONDS_TO_STOP = 60

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory, in which the sweep runs in `s`."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def sweep(home: Path, no_mlflow: None) -> Iterator[subprocess.Popen[str]]:
    """`attnsweep run`, from its first trained pack on."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [str(BIN / "attnsweep"), "run", "quickstart", "--trials", "5000", "--pack-size", "4", "--trainers", "1"]
    with subprocess.Popen(
        [*command, "--dir", "s", "--engine", "eager", "--set", "n_steps=50"],
        cwd=home,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if re.search(r"trainings [1-9]", line):
                    break
            # Its trainings play no part in what is looked at, and would keep a core busy.
            (trainer,) = (pid for pid, command in _tree(process.pid).items() if command.startswith("ray::TrainerActor"))
            os.kill(trainer, signal.SIGSTOP)
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_it_listens_on_loopback_alone(sweep: subprocess.Popen[str]) -> None:
    listening = {(port, address): command for pid, command in _tree(sweep.pid).items() for address, port in _heard(pid)}
    assert any("gcs_server" in command for command in listening.values()), listening
    assert any("raylet" in command for command in listening.values()), listening
    open_to_others = {place: command for place, command in listening.items() if not _is_loopback(place[1])}
    assert open_to_others == {}


def test_it_asks_for_a_token(sweep: subprocess.Popen[str]) -> None:
    """`RAY_AUTH_MODE` is not set: authentication is Ray's default for a cluster that it starts, and we keep it."""
    processes = _tree(sweep.pid)
    (gcs,) = (pid for pid, command in processes.items() if "gcs_server" in command)
    assert b"RAY_AUTH_MODE=token" in Path(f"/proc/{gcs}/environ").read_bytes().split(b"\0")
    port = next(found[1] for command in processes.values() if (found := re.search(r"--gcs-address=\S+:(\d+)", command)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    # The last one prevents Ray from replacing 127.0.0.1 by the network's address.
    stranger = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a stranger's", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    asked = subprocess.run(
        [BIN / "ray", "status", "--address", f"127.0.0.1:{port}"],
        env=environment | stranger,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert asked.returncode != 0
    assert "authentication" in (asked.stdout + asked.stderr).lower()


def test_ctrl_c_commits_what_is_done_and_leaves_nobody_listening(sweep: subprocess.Popen[str], home: Path) -> None:
    """Sends SIGINT to the whole process group, as a terminal does."""
    processes = _tree(sweep.pid)
    (trainer,) = (pid for pid, command in processes.items() if command.startswith("ray::TrainerActor"))
    os.kill(trainer, signal.SIGCONT)
    os.killpg(sweep.pid, signal.SIGINT)
    _, errors = sweep.communicate(timeout=SECONDS_TO_STOP)
    assert sweep.returncode == 130, errors
    assert "interrupted; continue with: attnsweep resume s" in errors
    assert "Traceback" not in errors
    assert Ledger(home / "s").trainings().num_rows > 0
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes), "all that it started to end")


def _tree(root: int) -> dict[int, str]:
    """The command lines of a process and all that it has started, which Ray keeps in its session."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
                if session == root or _descends(int(folder.name), root):
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
    return found


def _descends(pid: int, root: int) -> bool:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if pid == root:
            return True
    return False


def _heard(pid: int) -> list[tuple[str, int]]:
    """The addresses and ports on which a process listens."""
    targets = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            targets.append(str(link.readlink()))
    sockets = {found[1] for target in targets if (found := re.fullmatch(r"socket:\[(\d+)\]", target))}
    heard = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in sockets:
                address, _, port = words[1].partition(":")
                heard.append((address, int(port, 16)))
    return heard


def _is_loopback(address: str) -> bool:
    """Parses an address of the kernel's tables: 32-bit words, each in the machine's byte order."""
    packed = b"".join(int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8))
    if len(packed) == 4:
        return IPv4Address(packed).is_loopback
    mapped = IPv6Address(packed).ipv4_mapped
    return (mapped or IPv6Address(packed)).is_loopback
