"""The user's own state: users unknown to the machine, homes that cannot be written."""

import getpass
import os
import pwd
from pathlib import Path

import pytest

from attnsweep.orchestrator.storage.environment import current_provenance
from attnsweep.orchestrator.training.cluster import _keep_token_elsewhere
from tests.orchestrator.commands import command


def test_a_bare_number_has_a_name_and_a_home_that_nobody_can_make(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        # Set first, so that what the command sets is taken back.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    command("--version")
    assert Path.home() == Path("/nonexistent")
    assert (getpass.getuser(), current_provenance()["user"]) == (str(os.getuid()), str(os.getuid()))


def test_rays_token_is_in_the_environment_where_the_home_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    _keep_token_elsewhere()
    assert "RAY_AUTH_TOKEN" not in os.environ
    monkeypatch.setenv("HOME", "/dev/null")
    _keep_token_elsewhere()
    token = os.environ["RAY_AUTH_TOKEN"]
    assert len(token) == 64
    _keep_token_elsewhere()
    assert os.environ["RAY_AUTH_TOKEN"] == token
