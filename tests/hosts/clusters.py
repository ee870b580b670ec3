"""A Ray cluster on hosts of our own, made and used as docs/clusters.md says."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.hosts.namespaces import Host, Network

BIN = Path("/opt/attnsweep/bin")
HEAD = "10.77.0.1:6379"
TOKEN = {"RAY_AUTH_MODE": "token"}
_PATIENT = {"RAY_gcs_server_port_wait_time_s": "150"}
"""All hosts share a machine, which may be busy."""
NONE: Mapping[str, str] = {}
_ATTEMPTS = 2
"""A node of Ray has 30 s to come up, whatever the machine is busy with."""
QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 8,
}
"""Ray's settings with which a host is lost after 8 to 16 seconds of silence; by default after about a minute."""
# Small enough for three hosts on one machine; nothing else differs from the document.
SMALL = ("--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats")


class HostedCluster:
    """Host 1 is the head, and submits; all have one core each, and share /srv.

    Args:
        network: Where hosts are made.
        system_config: Ray's own settings.
        variables: The environment of every command, beside the token's.

    Attributes:
        variables: The same, with the token's.
    """

    def __init__(self, network: Network, system_config: dict[str, Any] | None = None, **variables: str) -> None:
        self.network = network
        self._system_config = system_config or {}
        self.variables = TOKEN | _PATIENT | variables

    def host(self, number: int) -> Host:
        return self.network.hosts[number]

    def start_head(self, variables: Mapping[str, str] = NONE, *, takes_jobs: bool = True) -> None:
        """The token, and the head, on a new host 1. The dashboard takes the jobs; it is half a dozen processes."""
        head = self.network.add(1)
        if 2 in self.network.hosts:
            self._give_token(head, self.host(2).path("/root/.ray/auth_token").read_text())
        else:
            generate = f"umask 077 && {BIN / 'ray'} get-auth-token --generate"
            head.run("bash", "-c", generate, variables=self.variables)
        settings = [f"--system-config={json.dumps(self._system_config)}"] if self._system_config else []
        ports = ["--port=6379", "--dashboard-port=8265" if takes_jobs else "--include-dashboard=false"]
        words = ["start", "--head", *ports, *SMALL, *settings]
        head.run(BIN / "ray", *words, variables={**self.variables, **variables})

    def start_workers(self, numbers: Sequence[int]) -> None:
        """New hosts that join, all at once."""
        token = self.host(1).path("/root/.ray/auth_token").read_text()
        for number in numbers:
            self._give_token(self.network.add(number), token)
        self.join(numbers)

    def join(self, numbers: Sequence[int], variables: Mapping[str, str] = NONE) -> None:
        """Hosts that are up join."""
        words = ["start", f"--address={HEAD}", *SMALL]
        for _ in range(_ATTEMPTS):
            joining = {number: self.start(number, "ray", *words, variables=variables) for number in numbers}
            said = {number: process.communicate(timeout=200)[0] for number, process in joining.items()}
            numbers = [number for number, process in joining.items() if process.returncode != 0]
        assert not numbers, said

    def run(
        self, number: int, program: str, *words: str | Path, seconds: float = 120, variables: Mapping[str, str] = NONE
    ) -> str:
        """Runs a program of the environment on a host to its end."""
        return self.host(number).run(BIN / program, *words, seconds=seconds, variables={**self.variables, **variables})

    def start(
        self, number: int, program: str | Path, *words: str | Path, variables: Mapping[str, str] = NONE
    ) -> "subprocess.Popen[str]":
        """Starts a program of the environment on a host, or any that is given by its path."""
        return self.host(number).start(BIN / program, *words, variables={**self.variables, **variables})

    def give_token(self, number: int) -> None:
        """Copies the token from the head to a new host."""
        self._give_token(self.host(number), self.host(1).path("/root/.ray/auth_token").read_text())

    def _give_token(self, host: Host, token: str) -> None:
        folder = host.path("/root/.ray")
        folder.mkdir(mode=0o700, exist_ok=True)
        file = folder / "auth_token"
        file.write_text(token)
        file.chmod(0o600)
