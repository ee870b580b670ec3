"""Imports of many modules, made as cheap as they can be."""

import gc
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder

from attnsweep.orchestrator.garbage import uncollected


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
def importing(*, without: Collection[str] = ()) -> Iterator[None]:
    """Within this context no garbage is collected, and what is imported is never looked at again.

    Args:
        without: Modules that count as not installed here, for libraries that import whatever is there in case it is
            given to them: pandas takes 0.3 s, and Arrow looks for it when it makes its first scalar or array.
    """
    absent = _NotInstalled(without)
    with uncollected():
        sys.meta_path.insert(0, absent)
        try:
            yield
        finally:
            sys.meta_path.remove(absent)
            gc.freeze()
