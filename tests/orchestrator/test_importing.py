"""Imports without garbage collection."""

import gc
from contextlib import suppress

from attnsweep.orchestrator.importing import importing


def test_garbage_is_collected_again_afterwards() -> None:
    assert gc.isenabled()
    with suppress(ImportError), importing():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
