"""A driver that is killed at a given point.

The point is a method of the real code, `module:Class.method`, `@n` for its nth call; the process sends itself a SIGKILL
as the call begins, or with `+` before it, as it ends. With `mlflow ` before all that, the process that writes to MLflow
kills the driver there.
"""

import importlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnsweep.orchestrator.tracking import processes

LEARNS: dict[str, Any] = {"sampler": "tpe"}
"""The sweep has a study to write."""


def plant(point: str, number: int = signal.SIGKILL, of: int | None = None) -> None:
    """Makes this process, or another, die there, or get another signal."""
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
            os.kill(of or os.getpid(), number)
            if of is not None:
                signal.pause()
        return method(*arguments, **named)

    setattr(owner, method_name, die_in)


def plant_in_mlflow(point: str) -> None:
    """Makes the process that this one will start for MLflow kill this one there."""
    program = (
        f"import sys; sys.path.append({str(Path(__file__).parents[2])!r}); from tests.fault import killed_driver; "
    )
    program += f"killed_driver.plant({point!r}, of={os.getpid()}); "
    processes._PROGRAM = program + processes._PROGRAM


def main(path: Path, point: str, mlflow_uri: str, resources: Mapping[str, Any]) -> None:
    """Runs the small sweep, or resumes it, until the driver dies."""
    # Not above: the process that writes to MLflow, where a kill may be planted, needs no PyTorch.
    from tests.fault import sweeps

    os.environ["MLFLOW_TRACKING_URI"] = mlflow_uri
    if point.startswith("mlflow "):
        plant_in_mlflow(point.removeprefix("mlflow "))
    else:
        plant(point)
    if (path / "sweep.json").exists():
        sweeps.resume(path, **resources, pack_size=4)
    else:
        sweeps.run(sweeps.small_sweep(**LEARNS), path, **resources, pack_size=4)
