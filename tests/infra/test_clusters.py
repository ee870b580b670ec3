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
from jsonschema import ValidationError
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


def test_the_token_is_asked_for_and_not_written_down() -> None:
    assert _read("skypilot.yaml")["secrets"] == {"RAY_AUTH_TOKEN": None}


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


@pytest.mark.parametrize("key", ["head_start_ray_command", "worker_ips"])
def test_ray_refuses_a_key_in_the_wrong_place(key: str) -> None:
    with pytest.raises(ValidationError, match=f"'{key}' was unexpected"):
        validate_config(prepare_config(_cluster() | {key: []}))


def test_every_node_asks_for_the_token() -> None:
    config = _cluster()
    starts = [line for role in ("head", "worker") for line in config[f"{role}_start_ray_commands"] if " start " in line]
    assert len(starts) == 2
    assert all(" RAY_AUTH_MODE=token ray start " in f" {line}" for line in starts)
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"


def test_an_environment_without_attnsweep_is_one_line() -> None:
    # -I and -S: the interpreter without its installed packages.
    done = subprocess.run(
        [sys.executable, "-I", "-S", INFRA / "ray_submit.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"attnsweep: not installed for {sys.executable}; "
        "put the bin/ of its environment first on the head's PATH (see infra/cluster.yaml)\n"
    )


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


def test_the_unit_never_gives_up() -> None:
    assert {"Restart=always", "StartLimitIntervalSec=0"} <= set(UNIT.splitlines())


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
