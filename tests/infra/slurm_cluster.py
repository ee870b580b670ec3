"""A Slurm cluster of our own: one controller and three nodes on this machine, without munge."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_ports

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "srun")
N_NODES = 3
SECONDS_TO_WAIT = 60
CONFIGURATION = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
SwitchType=switch/none
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
ReturnToService=2
KillWait=10
MinJobAge=600
{nodes}
PartitionName=all Nodes=n[1-{n_nodes}] Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class SlurmCluster:
    """A cluster that is up.

    Attributes:
        folder: Its state and logs.
        environment: That of its users.
    """

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str | Path, **variables: str) -> str:
        """What one of Slurm's programs prints."""
        done = subprocess.run(
            command,
            env=self.environment | variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def field(self, job: str, name: str) -> str:
        """A field of `scontrol show job`."""
        words = self.run("scontrol", "show", "job", job, "--oneliner").split()
        return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))


def missing_programs() -> list[str]:
    """What of Slurm is not installed here."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def wait_until(condition: Callable[[], bool], what: str, seconds: float = SECONDS_TO_WAIT) -> None:
    """Asks twice a second: each question to Slurm is a process."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain: {what}"
        threading.Event().wait(0.5)


@contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """Starts the controller and the nodes; ends them, and every job."""
    # Not pytest's own folder: its name is too long for some of Slurm's sockets.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    (folder / "state").mkdir()
    ports = free_ports(1 + N_NODES)
    host = socket.gethostname()
    names = [f"n{number}" for number in range(1, N_NODES + 1)]
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=1000 State=UNKNOWN"
        for name, port in zip(names, ports[1:], strict=True)
    )
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(host=host, ports=ports, folder=folder, nodes=nodes, n_nodes=N_NODES))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "RAY_", "MLFLOW_"))}
    cluster = SlurmCluster(folder, kept | {"SLURM_CONF": str(configuration)})
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        daemons.append(_daemon(cluster, "slurmctld", "-D"))
        daemons += [_daemon(cluster, "slurmd", "-D", "-N", name) for name in names]
        wait_until(lambda: _answers(cluster, names), "Slurm's nodes")
        yield cluster
    finally:
        with suppress(AssertionError, subprocess.TimeoutExpired):
            cluster.run("scancel", "--full", "--user=root")
            wait_until(lambda: not cluster.run("squeue", "--noheader"), "the end of Slurm's jobs")
        for daemon in reversed(daemons):
            _stop(daemon)
        shutil.rmtree(folder, ignore_errors=True)


def _daemon(cluster: SlurmCluster, *command: str) -> subprocess.Popen[bytes]:
    with (cluster.folder / f"{command[0]}.out").open("ab") as sink:
        return subprocess.Popen(
            command,
            env=cluster.environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _stop(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(timeout=20)
    except subprocess.TimeoutExpired:
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()


def _answers(cluster: SlurmCluster, names: list[str]) -> bool:
    with suppress(AssertionError, subprocess.TimeoutExpired):
        return cluster.run("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle"] * len(names)
    return False


ENVIRONMENT = Path(sys.executable).parent
"""The bin/ of the environment, as jobs are told of it."""
