"""The user's own state: users unknown to the machine, homes that cannot be written."""

import getpass
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from attnsweep.orchestrator.storage.environment import current_provenance
from attnsweep.orchestrator.training.cluster import _keep_token_elsewhere
from tests.orchestrator.commands import command

IN_COMMANDS = """
import sys
from attnsweep.orchestrator import cli
sys.argv[1:] = ["specs", "quickstart"]
try:
    cli.main()
except SystemExit:
    pass
"""


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


def test_matplotlib_does_not_warn_of_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MPL", "XDG"))}
    done = subprocess.run(
        [sys.executable, "-c", f"{IN_COMMANDS}\nimport matplotlib\nmatplotlib.get_configdir()"],
        env=environment | {"HOME": "/dev/null", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


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
