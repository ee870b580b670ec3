"""A driver that gets a signal at a given point: a method of the real code, `module:Class.method`."""

import importlib
import os
from typing import Any


def plant(point: str, number: int) -> None:
    """Makes this process signal itself as the method is called first."""
    module, _, name = point.partition(":")
    class_name, method_name = name.split(".")
    owner = getattr(importlib.import_module(module), class_name)
    method = getattr(owner, method_name)

    def signalled(*arguments: Any, **named: Any) -> Any:
        setattr(owner, method_name, method)
        os.kill(os.getpid(), number)
        return method(*arguments, **named)

    setattr(owner, method_name, signalled)
