"""`make PYTHON=...`, with interpreters that are scripts."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def interpreter(path: Path, version: str) -> Path:
    """Says its version and whether it is too old; whatever else is asked succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    too_old = int(int(version.split(".")[1]) < 11)
    path.write_text(f"#!/bin/sh\ncase $1 in --version) echo Python {version};; -c) exit {too_old};; esac\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("named", "used", "refused"),
    [
        ("3.10.1", None, "(Python 3.10.1), expected Python 3.11 to 3.13"),
        ("3.12.6", "3.11.7", "(Python 3.12.6), expected Python 3.11.7, which"),
        ("3.12.6", "3.12.6", ""),
        (None, "3.12.6", ""),
    ],
)
def test_the_named_interpreter_is_used_or_refused(
    named: str | None, used: str | None, refused: str, tmp_path: Path
) -> None:
    environment = tmp_path / "venv"
    command = ["make", f"{environment}/.installed", f"VENV={environment}"]
    if named:
        command.append(f"PYTHON={interpreter(tmp_path / 'python', named)}")
    if used:
        interpreter(environment / "bin" / "python", used)
    # `make test` hands its own PYTHON on.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHON" and not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    assert refused in done.stderr
    assert (done.returncode != 0) == bool(refused), done.stderr
    assert (environment / ".installed").exists() != bool(refused)
