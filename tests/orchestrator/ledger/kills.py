"""Kills at every step of every write to a sweep, and of a writer in a process of its own."""

import os
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import pyarrow.parquet as pq
import pytest

from attnsweep.orchestrator.storage.place_names import PlaceName

STEPS: Collection[tuple[Any, str]] = (
    (os, "open"),
    (os, "mkdir"),
    (os, "replace"),
    (os, "unlink"),
    (os, "fsync"),
    (pq.ParquetWriter, "write_batch"),
)
"""The steps of a write to a disk."""

Root = TypeVar("Root", bound=PlaceName)


class Crash(BaseException):
    """Simulates a killed process."""


def crashes(root: Root, act: Callable[[Root], object], step: int, steps: Collection[tuple[Any, str]] = STEPS) -> bool:
    """Runs the action until this step, after which no step has an effect. Returns whether the action came so far."""
    n_done = 0

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **kwargs: Any) -> Any:
            nonlocal n_done
            if n_done >= step:
                raise Crash
            n_done += 1
            return real(*args, **kwargs)

        return act

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in steps:
            patch.setattr(owner, name, dying(getattr(owner, name)))
        try:
            act(root)
        except Crash:
            return True
    return False
