"""Kills at every step of every write to a sweep directory."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

STEPS = (
    (os, "open"),
    (os, "mkdir"),
    (os, "replace"),
    (os, "unlink"),
    (os, "fsync"),
    (pq.ParquetWriter, "write_batch"),
)
"""The steps of a write."""


class Crash(BaseException):
    """Simulates a killed process."""


@contextmanager
def crash_at(step: int) -> Iterator[list[str]]:
    """From this step on, no write reaches the disk. Yields the names of the steps that did."""
    done: list[str] = []

    def dying(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **kwargs: Any) -> Any:
            if len(done) >= step:
                raise Crash
            done.append(name)
            return real(*args, **kwargs)

        return act

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in STEPS:
            patch.setattr(owner, name, dying(name, getattr(owner, name)))
        yield done


def crashes(root: Path, act: Callable[[Path], object], step: int) -> bool:
    """Runs the action; returns whether it reached the step at which it crashes."""
    with crash_at(step):
        try:
            act(root)
        except Crash:
            return True
    return False
