"""A process that trains keeps freed memory for the next tensors."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from attnsweep.workloads.engine.process import training_settings

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with training_settings():
    print(min(page_faults() for _ in range(8)))
"""


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_tensors_reuse_the_memory_of_those_before() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    pages_of_a_tensor = 4 * 2**24 // 4096
    assert int(done.stdout) < pages_of_a_tensor
