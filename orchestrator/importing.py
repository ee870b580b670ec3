"""Imports that leave out a library which is there, but not needed; and of libraries that need not be there."""

import importlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import Any

from attnsweep.workloads.errors import UserError


class _NotInstalled(MetaPathFinder):
    """Finds no module of these names, wherever they are installed."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, *_: object) -> None:
        """Leaves other names to the next finder.

        Raises:
            ModuleNotFoundError: For these names.
        """
        if fullname in self._names:
            raise ModuleNotFoundError(f"{fullname} is left out here", name=fullname)


@contextmanager
def importing(*, without: Collection[str]) -> Iterator[None]:
    """Within this context these modules count as not installed, unless they were imported before.

    For libraries that import whatever is there in case it is given to them: Arrow looks for pandas when it makes its
    first scalar or array, which would take a fifth of the time of `attnsweep query`.
    """
    absent = _NotInstalled(without)
    sys.meta_path.insert(0, absent)
    try:
        yield
    finally:
        sys.meta_path.remove(absent)


def import_extra(module: str, extra: str, subject: str) -> Any:
    """A module of a library that an extra of attnsweep brings.

    Args:
        module: Its name.
        extra: The extra's.
        subject: What needs it, as an error names it.

    Raises:
        UserError: If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            subject,
            given=f"no library {module.partition('.')[0]} ({error})",
            expected="it to be installed",
            fix=f"pip install 'attnsweep[{extra}]'",
        ) from error
