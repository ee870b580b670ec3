"""Conditions on metrics, written as text."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from attnsweep.workloads.conditions import holds, implies
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.vocabulary import NO_ROLE, OUTCOMES, ROLES, STUCK_OUTCOMES, UNJUDGED_OUTCOMES

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
        SpecError, match="expected a condition on metrics that the workload measures: accuracy, loss; did you mean loss"
    ):
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


def test_what_is_stuck_and_what_a_workload_may_say_are_outcomes() -> None:
    told = {name for name, outcome in OUTCOMES.items() if "stuck" in outcome.sentence}
    assert set(STUCK_OUTCOMES) == told | {"runaway"}
    assert set(UNJUDGED_OUTCOMES) == {"pruned", "failed"}
    assert list(ROLES)[-1] == NO_ROLE


def test_the_vocabulary_imports_no_torch() -> None:
    code = "import sys, attnsweep.workloads.vocabulary; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
