"""Limits of this process, under which system calls fail as on a full disk or a busy machine."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    """Limits the size of files, which fails a write like a full disk."""
    with _limit(resource.RLIMIT_FSIZE, n_bytes):
        yield


@contextmanager
def may_open(n_files: int) -> Iterator[None]:
    """Limits how many more files can be opened."""
    lowest = os.dup(0)
    os.close(lowest)
    with _limit(resource.RLIMIT_NOFILE, lowest + n_files):
        yield


@contextmanager
def _limit(kind: int, limit: int) -> Iterator[None]:
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)
