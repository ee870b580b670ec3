"""The systemd unit of a Ray node, by systemd's own check."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ray.scripts.scripts import cli

SYSTEMD = Path(__file__).parents[2] / "infra" / "systemd"
UNIT = (SYSTEMD / "attnsweep-ray.service").read_text()


def _found(unit: str, folder: Path) -> str:
    """What `systemd-analyze verify` says of a unit, which names only programs that are there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: apt-get install systemd")
    path = folder / "attnsweep-ray.service"
    path.write_text(unit.replace("/opt/attnsweep/bin", str(Path(sys.executable).parent)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def test_systemd_finds_nothing_in_the_unit(tmp_path: Path) -> None:
    assert _found(UNIT, tmp_path) == ""


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("Restart=always", "Restart=forever", "Failed to parse service restart specifier"),
        ("OOMPolicy", "OOMPolitics", "'OOMPolitics'"),
        ("/opt/attnsweep/bin/ray start", "/opt/attnsweep/bin/rai start", "is not executable"),
    ],
)
def test_systemd_sees_a_fault_in_it(right: str, wrong: str, message: str, tmp_path: Path) -> None:
    assert message in _found(UNIT.replace(right, wrong), tmp_path)


def test_it_never_gives_up() -> None:
    assert {"Restart=always", "StartLimitIntervalSec=0"} <= set(UNIT.splitlines())


@pytest.mark.parametrize("role", ["head", "worker"])
def test_ray_knows_its_commands(role: str) -> None:
    [start] = re.findall(r"^RAY_START=(.*)$", (SYSTEMD / f"{role}.env").read_text(), re.MULTILINE)
    lines = re.findall(r"^Exec(?:Start|Stop)=-?/opt/attnsweep/bin/ray (.*)$", UNIT, re.MULTILINE)
    commands = [shlex.split(line.replace("$RAY_START", start)) for line in lines]
    assert [command for command, *_ in commands] == ["start", "drain-node"]
    for command, *words in commands:
        # Refuses what it does not know.
        context = cli.commands[command].make_context(command, words)
        assert context.params["block" if command == "start" else "reason_message"]
