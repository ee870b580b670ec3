"""The files for SkyPilot and Anyscale: the command that they run; their form where the packages are that read them."""

import re
import string
from typing import Any

import pytest
import yaml

from tests.infra.commands import ROOT, parsed

INFRA = ROOT / "infra"


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
