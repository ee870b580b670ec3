"""Conditions on metrics, written as text."""

import numpy as np
import pytest

from attnsweep.workloads.conditions import holds
from attnsweep.workloads.errors import SpecError
from tests.refusals import refused

METRICS = {"accuracy": np.array([[0.5, 0.99, np.nan]]), "loss": np.array([[2.0, 0.5, 0.1]])}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("accuracy >= 0.99", [False, True, False]),
        ("loss < 1e0 and accuracy > .4", [False, True, False]),
        ("loss<=0.5", [False, True, True]),
        ("accuracy > -1", [True, True, False]),
    ],
)
def test_all_its_comparisons_hold_where_it_does(condition: str, expected: list[bool]) -> None:
    assert holds(condition, METRICS).tolist() == [expected]


@pytest.mark.parametrize(
    "condition", ["", "accuracy", "accuracy = 1", "accuracy >= x", "loss < 1 or loss > 2", "and", "los < 1"]
)
def test_what_is_no_condition_is_refused(condition: str) -> None:
    with refused("a condition", SpecError):
        holds(condition, METRICS)
