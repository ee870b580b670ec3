"""Machines without a C++ compiler."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_compiler() -> Iterator[None]:
    """Hides this machine's compiler from attnsweep."""
    from attnsweep.workloads.engine.compiling.building import compiler

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CXX", "/missing/compiler")
        compiler.cache_clear()
        yield
    compiler.cache_clear()
