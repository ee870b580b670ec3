"""Imports that leave out a library."""

import importlib.util

import pytest

from attnsweep.orchestrator.importing import importing


def test_what_is_left_out_is_not_found_until_afterwards() -> None:
    with (
        importing(without=("this",)),
        pytest.raises(ModuleNotFoundError, match="this is treated as not installed"),
    ):
        __import__("this")
    assert importlib.util.find_spec("this") is not None


def test_what_was_imported_before_stays() -> None:
    with importing(without=("json",)):
        import json
    assert json.loads("1") == 1
