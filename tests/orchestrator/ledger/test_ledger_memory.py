"""Threads of a process that writes a ledger share one pool of freed memory."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
from threading import Barrier, Thread
from attnsweep.orchestrator.ledger.writer import share_freed_memory

libc = ctypes.CDLL(None)
share_freed_memory()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
met = Barrier(4)
threads = [Thread(target=lambda: (bytearray(100_000), met.wait())) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_threads_share_one_pool() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after, _ = done.stdout.split("</malloc>\n")
    assert before.count("<heap ") == after.count("<heap ")
