"""Finding a workload: by entry point, as `module:Class`, or as `path/to/file.py:Class`."""

import importlib
import importlib.metadata
from pathlib import Path
from typing import Any

from workloads.engine.contract import Workload
from workloads.errors import SpecError
from workloads.user_code import load_module

ENTRY_POINT_GROUP = "attnsweep.workloads"


def registered_names() -> list[str]:
    """The workloads that installed packages offer."""
    return sorted(entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))


def load_workload(reference: str) -> Workload[Any]:
    """The workload that a spec names.

    Raises:
        SpecError: If there is none of that name, or it is no `Workload`.
    """
    entries = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=reference)
    if entries:
        return _instance(reference, next(iter(entries)).load())
    place, colon, class_name = reference.rpartition(":")
    if not colon:
        raise _unknown(reference)
    try:
        module = load_module(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        return _instance(reference, getattr(module, class_name))
    except (ImportError, AttributeError) as error:
        raise _unknown(reference) from error


def _instance(reference: str, kind: object) -> Workload[Any]:
    if not (isinstance(kind, type) and issubclass(kind, Workload)):
        raise SpecError(
            "workload",
            given=reference,
            expected="a subclass of workloads.engine.contract.Workload",
            mend="name the class, not an instance or a function",
        )
    return kind()


def _unknown(reference: str) -> SpecError:
    return SpecError(
        "workload",
        given=reference,
        expected=f"one of {', '.join(registered_names())}; or module:Class; or file.py:Class",
        mend="correct its name, or install the package that offers it",
    )
