"""The objective is finite whatever a trial's trainings did."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import LossQuantile, StuckRate
from search_spaces.objective import WORST_LOSS, objective_value

losses = st.none() | st.floats(0, allow_nan=False)
trainings = st.lists(st.tuples(st.booleans(), losses), min_size=1, max_size=30)


@given(trainings, st.floats(0, 1))
def test_it_is_finite_and_between_the_extremes(rows: list[tuple[bool, float | None]], quantile: float) -> None:
    stuck, loss = zip(*rows, strict=True)
    assert objective_value(StuckRate(), stuck, loss) == pytest.approx(sum(stuck) / len(stuck))
    value = objective_value(LossQuantile(quantile=quantile), stuck, loss)
    capped = [WORST_LOSS if each is None else min(each, WORST_LOSS) for each in loss]
    assert math.isfinite(value)
    assert value in capped


def test_a_diverged_training_counts_as_the_worst() -> None:
    assert objective_value(LossQuantile(quantile=1.0), [False, False], [None, 1.0]) == WORST_LOSS
    assert objective_value(LossQuantile(quantile=0.5), [False, False, False], [None, 1.0, 2.0]) == 2.0
