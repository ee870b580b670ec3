"""Hides installed libraries that are not needed from imports, and imports optional libraries."""

import importlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any

from attnsweep.workloads.errors import UserError


class _NotInstalled(MetaPathFinder):
    """An import finder that raises `ModuleNotFoundError` for the given modules, even if they are installed."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, *_: object) -> None:
        """Raises an error for a module that shall seem not to be installed. Returns `None` for all others, so that
        Python asks the next finder.

        Raises:
            ModuleNotFoundError: For one of the hidden modules.
        """
        if fullname in self._names:
            raise ModuleNotFoundError(
                f"{fullname} is treated as not installed, because importing it would take too long", name=fullname
            )


@contextmanager
def importing(*, without: Collection[str]) -> Iterator[None]:
    """A context in which the given modules seem not to be installed, unless they were imported before.

    Some libraries import optional dependencies whenever these are installed: Arrow imports pandas when it creates its
    first scalar or array. This import would take a fifth of the time of `attnsweep query`.
    """
    absent = _NotInstalled(without)
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)


def import_extra(module: str, extra: str, subject: str, otherwise: str = "") -> Any:
    """Imports a library that is installed by one of attnsweep's extras, such as `attnsweep[hf]`.

    Args:
        module: The module's name.
        extra: The name of the extra.
        subject: The command or parameter that needs the library, for the error.
        otherwise: What the user may do instead, for the error.

    Raises:
        UserError: If the library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            subject,
            given=f"the library {module.partition('.')[0]} cannot be imported ({error})",
            expected="an installed library",
            fix=f"install it with: pip install 'attnsweep[{extra}]'{otherwise}",
        ) from error
