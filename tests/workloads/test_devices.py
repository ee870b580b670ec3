"""The cases of `device_cases` in a process of their own.

PyTorch takes a pretended device only before its first backward pass, and has it for the rest of the process.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_no_workload_mixes_devices() -> None:
    cases = Path(__file__).with_name("device_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
