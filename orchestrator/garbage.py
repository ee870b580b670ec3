"""Python's garbage collection, where it takes time and finds nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collects no garbage meanwhile, as a `with` block or a decorator.

    The collector searches many small objects again and again, such as those of figures or of modules: an eighth of a
    report's time, a tenth of an import's.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
