"""The file for `ray up`, by Ray's own check; and the files that it names."""

from typing import Any

import pytest
import yaml
from jsonschema import ValidationError
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.infra.commands import ROOT

CLUSTER = ROOT / "infra" / "cluster.yaml"


def _filled_in() -> dict[str, Any]:
    """As a user fills it in."""
    text = CLUSTER.read_text()
    for place, value in {"HEAD_": "10.0.0.1", "WORKER_1_": "10.0.0.2", "WORKER_2_": "10.0.0.3"}.items():
        assert f"{place}ADDRESS" in text
        text = text.replace(f"{place}ADDRESS", value)
    config: dict[str, Any] = yaml.safe_load(text.replace("ssh_user: USER", "ssh_user: ubuntu"))
    return config


def test_ray_accepts_it() -> None:
    prepared = prepare_config(_filled_in())
    validate_config(prepared)
    assert prepared["available_node_types"]["local.cluster.node"]["max_workers"] == 2


@pytest.mark.parametrize("key", ["head_start_ray_command", "worker_ips"])
def test_ray_refuses_a_key_in_the_wrong_place(key: str) -> None:
    with pytest.raises(ValidationError, match=f"'{key}' was unexpected"):
        validate_config(prepare_config(_filled_in() | {key: []}))


def test_every_node_asks_for_the_token() -> None:
    config = _filled_in()
    starts = [line for role in ("head", "worker") for line in config[f"{role}_start_ray_commands"] if " start " in line]
    assert len(starts) == 2
    assert all(" RAY_AUTH_MODE=token ray start " in f" {line}" for line in starts)
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
