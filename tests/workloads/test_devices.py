"""The cases of `device_cases` and `gpu_sweep_cases`, in a process of their own.

PyTorch takes a pretended device only before its first backward pass, and has it for the rest of the process.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = ("workloads/device_cases.py", "orchestrator/running/gpu_sweep_cases.py")


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["not scale", pytest.param("scale", marks=pytest.mark.scale)])
def test_on_a_pretended_device(selection: str) -> None:
    cases = [str(ROOT / "tests" / name) for name in CASES]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m", selection, *cases]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
