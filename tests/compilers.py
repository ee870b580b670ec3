"""Machines without a C++ compiler."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_compiler() -> Iterator[None]:
    """Hides this machine's compiler from attnsweep."""
    # PyTorch's compiler reads the variable when it is imported: then other tests would have none either.
    import torch._inductor.config  # noqa: F401

    from attnsweep.workloads.engine.compiling.libraries import compiler

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CXX", "/missing/compiler")
        compiler.cache_clear()
        yield
    compiler.cache_clear()
