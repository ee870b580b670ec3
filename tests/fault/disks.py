"""Small file systems for tests of a full disk."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(root: Path, n_kibibytes: int) -> Iterator[Path]:
    """A file system of this size, mounted at a new folder; the test is skipped if mounting is not possible."""
    root.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={n_kibibytes}k", "tmpfs", str(root)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a file system can be mounted by root alone")
    try:
        yield root
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)


def enlarge(root: Path, n_kibibytes: int) -> None:
    """Enlarges a mounted file system."""
    subprocess.run(["mount", "-o", f"remount,size={n_kibibytes}k", str(root)], check=True)
