"""Hosts in Linux namespaces: each with its own network, mounts, processes and name, on a switch that all share.

A host has its own /tmp, /root, /opt and /dev/shm, on a disk that is memory. It sees the environment of this test read-
only, at its own path and at /opt/attnsweep, and a folder that all hosts share at /srv. Nothing of a host outlives the
process that made it: a host ends when the pipe to its first process closes.
"""

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS_TO_COME_UP = 30
DISK = "512m"
_COVERED = ("/tmp", "/root", "/opt")
_MADE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SWITCH = """
set -e
ip link set lo up
ip link add switch type bridge
ip link set switch up
echo up
read -r _
"""

# Arguments: name, size of the disk, folder for /srv, environment for /opt/attnsweep, folders to be seen as they are.
_HOST = """
set -e
name=$1 disk=$2 shared=$3 environment=$4; shift 4
mount --make-rprivate /
hostname "$name"
mount -t proc proc /proc
mount -t tmpfs -o size=1g memory /dev/shm
mount --bind "$shared" /srv
# /mnt is the disk. What is to be seen is kept there while the folders around it are covered.
mount -t tmpfs -o "size=$disk" disk /mnt
mkdir -p /mnt/tmp /mnt/root /mnt/opt /mnt/seen
chmod 1777 /mnt/tmp
n=0
for path in "$@"; do
  mkdir /mnt/seen/$n; mount --rbind "$path" /mnt/seen/$n; n=$((n + 1))
done
for folder in tmp root opt; do mount --bind /mnt/$folder /$folder; done
n=0
for path in "$@"; do
  mkdir -p "$path"; mount --rbind /mnt/seen/$n "$path"; mount -o remount,bind,ro "$path"; n=$((n + 1))
done
mkdir -p /opt/attnsweep
mount --bind "$environment" /opt/attnsweep
{ echo 127.0.0.1 localhost; for n in 1 2 3 4 5 6 7 8 9; do echo "10.77.0.$n host$n"; done; } > /mnt/hosts
mount --bind /mnt/hosts /etc/hosts
echo up
# Reaps what Ray leaves to it, until the pipe closes.
read -r _
"""


def check_possible() -> None:
    """Skips the test where hosts cannot be made."""
    missing = [each for each in ("unshare", "nsenter", "ip", "mount") if shutil.which(each, path=_MADE_PATH) is None]
    if missing:
        pytest.skip(f"hosts in namespaces need {', '.join(missing)} (Debian: util-linux, iproute2)")
    if os.getuid() != 0:
        pytest.skip("hosts in namespaces are made by root")
    tried = ["unshare", "--net", "--mount", "--uts", "--pid", "--ipc", "--fork", "ip", "link", "add", "type", "bridge"]
    done = subprocess.run(tried, capture_output=True, text=True, timeout=SECONDS_TO_COME_UP, check=False)
    if done.returncode != 0:
        pytest.skip(f"hosts in namespaces are refused here: {done.stderr.strip()}")


class _Namespaces:
    """A process in namespaces of its own, and all that run in them."""

    def __init__(self, kinds: Sequence[str], script: str, *arguments: str) -> None:
        command = ["unshare", *kinds, "--fork", "--kill-child", "bash", "-c", script, "bash", *arguments]
        self._init = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        assert self._init.stdout is not None
        ready, _, _ = select.select([self._init.stdout], [], [], SECONDS_TO_COME_UP)
        said = self._init.stdout.readline() if ready else b"nothing"
        if said != b"up\n":
            self._init.kill()
            rest, _ = self._init.communicate(timeout=SECONDS_TO_COME_UP)
            pytest.fail(f"namespaces did not come up: {(said + rest).decode()}")

    @property
    def pid(self) -> int:
        """A process that is in all of the namespaces but that of the processes."""
        return self._init.pid

    @property
    def is_up(self) -> bool:
        return self._init.poll() is None

    def network(self, *words: object) -> None:
        """Runs an `ip` command in its network."""
        command = ["nsenter", "--target", str(self.pid), "--net", "ip", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_TO_COME_UP, check=False)
        assert done.returncode == 0, (command, done.stderr)

    def end(self) -> None:
        """Ends every process at once: the first of a namespace takes all others with it."""
        self._init.kill()
        self._init.communicate(timeout=SECONDS_TO_COME_UP)


class Host(_Namespaces):
    """A machine.

    Attributes:
        name: As `hostname` tells it, and as all hosts know it.
        address: On the switch.
    """

    def __init__(self, number: int, switch: _Namespaces, shared: Path, disk: str = DISK) -> None:
        self.number, self.name, self.address = number, f"host{number}", f"10.77.0.{number}"
        self._switch = switch
        seen = [path for path in _needed() if any(map(path.is_relative_to, _COVERED))]
        kinds = ["--net", "--mount", "--uts", "--pid", "--ipc"]
        super().__init__(kinds, _HOST, self.name, disk, str(shared), sys.prefix, *map(str, seen))
        with suppress(AssertionError):
            switch.network("link", "del", f"port{number}")
        switch.network("link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", self.pid)
        switch.network("link", "set", f"port{number}", "master", "switch", "up")
        self.network("link", "set", "lo", "up")
        self.network("addr", "add", f"{self.address}/24", "dev", "eth0")
        self.network("link", "set", "eth0", "up")
        # Ray finds its own address by asking for the way to a public one; this way leads nowhere.
        self.network("route", "add", "default", "via", "10.77.0.254")

    def start(self, *command: str | Path, variables: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Starts a command as a login would: in /root, with an environment of its own."""
        enter = ["nsenter", "--target", str(self.pid), "--mount", "--uts", "--ipc", "--net"]
        enter += [f"--pid=/proc/{self.pid}/ns/pid_for_children", "--wd=/root"]
        environment = {"HOME": "/root", "USER": "root", "LANG": "C.UTF-8", "PATH": _MADE_PATH, "TERM": "dumb"}
        return subprocess.Popen(
            [*enter, "--", *map(str, command)],
            env=environment | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(
        self,
        *command: str | Path,
        seconds: float = 120,
        code: int = 0,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Runs a command to its end, which has to be the given exit code; returns what it printed."""
        process = self.start(*command, variables=variables)
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"{self.name}: {command} did not end within {seconds:g} s")
        assert process.returncode == code, f"{self.name}: {command} ended with {process.returncode}:\n{said}"
        return said

    def path(self, path: str | Path) -> Path:
        """A path of this host as the test sees it."""
        return Path(f"/proc/{self.pid}/root", *Path(path).parts[1:])

    def cut(self) -> None:
        """Pulls the plug of its network: neither side hears that the other is gone."""
        self._switch.network("link", "set", f"port{self.number}", "down")

    def heal(self) -> None:
        """Puts the plug back."""
        self._switch.network("link", "set", f"port{self.number}", "up")

    def power_off(self) -> None:
        """A power cut: the network first, so that no connection is closed; then all of its processes."""
        self.cut()
        self.end()


class Network:
    """Hosts on one switch.

    Args:
        shared: The folder that all of them see at /srv.
    """

    def __init__(self, shared: Path) -> None:
        self.shared = shared
        self._switch = _Namespaces(["--net"], _SWITCH)
        self.hosts: dict[int, Host] = {}

    def add(self, number: int, disk: str = DISK) -> Host:
        """Makes a host, or makes it anew after its end."""
        if number in self.hosts:
            self.hosts[number].end()
        self.hosts[number] = Host(number, self._switch, self.shared, disk)
        return self.hosts[number]

    def close(self) -> None:
        """Ends all hosts."""
        for each in (*self.hosts.values(), self._switch):
            each.end()


def _needed() -> list[Path]:
    """Folders that hold the interpreter, its environment and the code, wherever they are; none inside another."""
    found = {Path(each).resolve() for each in (ROOT, sys.prefix, sys.base_prefix)}
    return sorted(path for path in found if not any(path != other and path.is_relative_to(other) for other in found))
