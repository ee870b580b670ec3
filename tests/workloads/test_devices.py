"""The cases of `device_cases` and `step_cases`, in a process of their own.

PyTorch takes a pretended device only before its first backward pass, and has it for the rest of the process.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["not scale", pytest.param("scale", marks=pytest.mark.scale)])
def test_on_a_pretended_device(selection: str) -> None:
    cases = [str(Path(__file__).with_name(name)) for name in ("device_cases.py", "step_cases.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m", selection, *cases]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
