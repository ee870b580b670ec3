"""The files for Ray on other machines: by `ray up`, `ray submit`, systemd, SkyPilot and Anyscale."""

import re
import shlex
import shutil
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.scripts.scripts import cli

from tests.infra.commands import ROOT, parsed

INFRA = ROOT / "infra"
CLUSTER = INFRA / "cluster.yaml"
SYSTEMD = INFRA / "systemd"
UNIT = (SYSTEMD / "attnsweep-ray.service").read_text()


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((INFRA / name).read_text())
    return content


def _command(name: str) -> str:
    content = _read(name)
    if "entrypoint" in content:
        return str(content["entrypoint"])
    [line] = re.findall(r"^attnsweep .*$", content["run"], re.MULTILINE)
    return string.Template(line).substitute(content["envs"])


@pytest.mark.parametrize("name", ["skypilot.yaml", "anyscale-job.yaml"])
def test_the_command_can_be_repeated_on_other_machines(name: str) -> None:
    parameters = parsed(_command(name))
    assert parameters["or_resume"]
    assert parameters["directory"].startswith("s3://")


def test_skypilot_reads_its_file() -> None:
    sky = pytest.importorskip("sky", reason="no skypilot: pip install skypilot, in an environment of its own")
    assert sky.Task.from_yaml(str(INFRA / "skypilot.yaml")).num_nodes == 2


def test_anyscale_reads_its_file() -> None:
    models = pytest.importorskip(
        "anyscale.job.models", reason="no anyscale: pip install anyscale, in an environment of its own"
    )
    assert models.JobConfig.from_yaml(str(INFRA / "anyscale-job.yaml")).max_retries == 5


def _cluster() -> dict[str, Any]:
    """As a user fills it in."""
    text = CLUSTER.read_text()
    for place, value in {"HEAD_": "10.0.0.1", "WORKER_1_": "10.0.0.2", "WORKER_2_": "10.0.0.3"}.items():
        assert f"{place}ADDRESS" in text
        text = text.replace(f"{place}ADDRESS", value)
    config: dict[str, Any] = yaml.safe_load(text.replace("ssh_user: USER", "ssh_user: ubuntu"))
    return config


def test_ray_accepts_the_cluster() -> None:
    prepared = prepare_config(_cluster())
    validate_config(prepared)
    assert prepared["available_node_types"]["local.cluster.node"]["max_workers"] == 2


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


@pytest.mark.parametrize("role", ["head", "worker"])
def test_ray_knows_the_commands_of_the_unit(role: str) -> None:
    [start] = re.findall(r"^RAY_START=(.*)$", (SYSTEMD / f"{role}.env").read_text(), re.MULTILINE)
    lines = re.findall(r"^Exec(?:Start|Stop)=-?/opt/attnsweep/bin/ray (.*)$", UNIT, re.MULTILINE)
    commands = [shlex.split(line.replace("$RAY_START", start)) for line in lines]
    assert [command for command, *_ in commands] == ["start", "drain-node"]
    for command, *words in commands:
        # Refuses what it does not know.
        context = cli.commands[command].make_context(command, words)
        assert context.params["block" if command == "start" else "reason_message"]
