"""The script for `ray submit`, run without a cluster."""

import subprocess
import sys
from pathlib import Path

RAY_SUBMIT = Path(__file__).parents[2] / "infra" / "ray_submit.py"


def test_an_environment_without_attnsweep_is_one_line() -> None:
    # -I and -S: the interpreter without its installed packages.
    done = subprocess.run([sys.executable, "-I", "-S", RAY_SUBMIT], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"attnsweep: not installed for {sys.executable}; "
        "put the bin/ of its environment first on the head's PATH (see infra/cluster.yaml)\n"
    )
