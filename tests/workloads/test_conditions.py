"""Conditions on metrics, written as text."""

import itertools

import numpy as np
import pytest

from attnsweep.workloads.conditions import holds, implies
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


@pytest.mark.parametrize("condition", ["", "accuracy", "accuracy = 1", "accuracy >= x", "loss < 1 or loss > 2", "and"])
def test_what_is_no_condition_is_refused(condition: str) -> None:
    with refused("a condition", SpecError):
        holds(condition, METRICS)


def test_a_metric_that_is_not_measured_is_refused() -> None:
    with refused("a condition", SpecError):
        holds("los < 1", METRICS)


def test_what_implies_another_condition_holds_nowhere_else() -> None:
    """At all pairs of values at the numbers and between them. Of two terms, only some implications are told."""
    terms = [f"a {sign} {number}" for sign in (">=", ">", "<=", "<") for number in (0.5, 1.0)] + ["b > 0.5"]
    conditions = [*terms, *map(" and ".join, itertools.combinations(terms, 2))]
    a, b = (each.reshape(1, -1) for each in np.meshgrid([0.0, 0.5, 0.75, 1.0, 2.0], [0.0, 1.0]))
    held = {each: holds(each, {"a": a, "b": b}) for each in conditions}
    for condition, other in itertools.product(conditions, conditions):
        is_elsewhere = (held[condition] & ~held[other]).any()
        if implies(condition, other):
            assert not is_elsewhere, f"{condition}: {other}"
        elif condition in terms:
            assert is_elsewhere, f"{condition}: {other}"
