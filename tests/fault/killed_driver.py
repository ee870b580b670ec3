"""A driver that is killed at a given point.

The point is a method of the real code, `module:Class.method`, `@n` for its nth call; the process sends itself a SIGKILL
as the call begins, or with `+` before it, as it ends.
"""

import importlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fault import sweeps

LEARNS: dict[str, Any] = {"sampler": "tpe"}
"""The sweep has a study to write."""


def plant(point: str, number: int = signal.SIGKILL) -> None:
    """Makes this process die there, or get another signal."""
    where, _, n_th = point.removeprefix("+").partition("@")
    module, _, name = where.partition(":")
    class_name, method_name = name.split(".")
    owner = getattr(importlib.import_module(module), class_name)
    method, n_calls = getattr(owner, method_name), 0

    def die_in(*arguments: Any, **named: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls == int(n_th or 1):
            if point.startswith("+"):
                method(*arguments, **named)
            os.kill(os.getpid(), number)
        return method(*arguments, **named)

    setattr(owner, method_name, die_in)


def main(path: Path, point: str, mlflow_uri: str, resources: Mapping[str, Any]) -> None:
    """Runs the small sweep, or resumes it, until the driver dies."""
    os.environ["MLFLOW_TRACKING_URI"] = mlflow_uri
    plant(point)
    if (path / "sweep.json").exists():
        sweeps.resume(path, **resources, pack_size=4)
    else:
        sweeps.run(sweeps.small_sweep(**LEARNS), path, **resources, pack_size=4)
