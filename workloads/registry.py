"""Finding a workload: by entry point, as `module:Class`, or as `path/to/file.py:Class`."""

import importlib
import importlib.metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from attnsweep.workloads.declarations import check_declarations
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import SpecError, UserError, in_words
from attnsweep.workloads.user_code import load_module, users_code

ENTRY_POINT_GROUP = "attnsweep.workloads"


def registered_names() -> list[str]:
    """The workloads that installed packages offer."""
    return sorted(entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))


def load_workload(reference: str) -> Workload[Any]:
    """The workload that a spec names.

    Raises:
        UserError: If there is none of that name, it is no `Workload`, or its module or file raises.
    """
    entry = next(iter(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=reference)), None)
    target = f"{entry.module}:{entry.attr}" if entry else reference
    place, colon, class_name = target.rpartition(":")
    if colon and place.endswith(".py"):
        module = load_module(Path(place))
    elif colon and all(part.isidentifier() for part in place.split(".")):
        module = _imported(place, class_name, reference)
    else:
        raise SpecError(
            "workload",
            given=reference,
            expected=f"one of {', '.join(registered_names())}; or module:Class; or file.py:Class",
            fix="correct its name, or install the package that offers it",
        )
    return _instance(module, class_name, reference)


def _imported(place: str, class_name: str, reference: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # A user's module may raise anything; it is the user's to mend.
        if isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}."):
            raise SpecError(
                "workload",
                given=reference,
                expected="module:Class of a module that is installed (the current directory is not searched)",
                fix=f"install its package; or, for a file beside the sweep, write file.py:{class_name}",
            ) from error
        raise SpecError(
            "workload",
            given=f"{reference}, whose module raised {in_words(error)}",
            expected="a module that can be imported",
            fix=f"mend it; to see where: python -c 'import {place}'",
        ) from error


def _instance(module: ModuleType, class_name: str, reference: str) -> Workload[Any]:
    if not hasattr(module, class_name):
        there = sorted(name for name, value in vars(module).items() if _is_workload(value) and value is not Workload)
        raise SpecError(
            "workload",
            given=reference,
            expected="a workload that is there: " + (", ".join(there) or "none is"),
            fix=f"correct the name {class_name}, or define it",
        )
    kind = getattr(module, class_name)
    if not _is_workload(kind):
        raise SpecError(
            "workload",
            given=reference,
            expected="a subclass of attnsweep.workloads.engine.contract.Workload",
            fix="name the class, not an instance or a function",
        )
    check_declarations(kind)
    with users_code(reference, "a class that is made without arguments", "correct its __init__, or leave it out"):
        made: Workload[Any] = kind()
    return made


def _is_workload(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Workload)
