"""Conditions on metrics, written as text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep.workloads.conditions import holds, implies
from attnsweep.workloads.errors import SpecError

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
    with pytest.raises(SpecError, match="expected comparisons of a metric with a number"):
        holds(condition, METRICS)


def test_a_metric_that_is_not_measured_is_refused() -> None:
    with pytest.raises(
        SpecError, match="expected metrics that the workload measures: accuracy, loss; did you mean loss"
    ):
        holds("los < 1", METRICS)


NUMBERS = st.sampled_from([0.0, 0.5, 1.0])
TERMS = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([">=", ">", "<=", "<"]), NUMBERS)
CONDITIONS = st.lists(TERMS, min_size=1, max_size=2).map(
    lambda terms: " and ".join(f"{a} {b} {c}" for a, b, c in terms)
)


@given(CONDITIONS, CONDITIONS)
def test_what_implies_another_condition_holds_nowhere_else(condition: str, other: str) -> None:
    """At all pairs of values at the numbers and between them. A condition that holds nowhere may imply all and is not
    said to."""
    values = np.array([-1.0, 0.0, 0.25, 0.5, 0.75, 1.0, 2.0])
    a, b = (each.reshape(1, -1) for each in np.meshgrid(values, values))
    held, other_held = holds(condition, {"a": a, "b": b}), holds(other, {"a": a, "b": b})
    if implies(condition, other):
        assert not (held & ~other_held).any()
    elif held.any():
        one_term = " and " not in condition
        assert (held & ~other_held).any() or not one_term
