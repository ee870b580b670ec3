"""The commands in cluster files, as the real command line reads them; and what the package asks for."""

import shlex
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from typer.main import get_group

from attnsweep.orchestrator.cli import app

ROOT = Path(__file__).parents[2]


def parsed(command: str) -> dict[str, Any]:
    """The parameters of an `attnsweep ...`.

    Raises:
        TyperException: If it has an option that is not there.
        KeyError: If there is no such command.
    """
    program, name, *words = shlex.split(command)
    assert program == "attnsweep", command
    return get_group(app).commands[name].make_context(name, words).params


def requirement(name: str) -> Requirement:
    """What pyproject.toml says of a library."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    [found] = [each for each in map(Requirement, dependencies) if each.name == name]
    return found
