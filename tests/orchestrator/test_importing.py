"""Imports made cheap."""

import gc
import importlib.util
from contextlib import suppress

import pytest

from attnsweep.orchestrator.importing import importing


def test_garbage_is_collected_again_afterwards() -> None:
    assert gc.isenabled()
    with suppress(ImportError), importing():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()


def test_what_is_left_out_is_not_found_until_afterwards() -> None:
    with importing(without=("this",)), pytest.raises(ModuleNotFoundError, match="this is left out here"):
        __import__("this")
    assert importlib.util.find_spec("this") is not None
