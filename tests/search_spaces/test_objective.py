"""The objective is finite whatever a trial's trainings did."""

import math
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep.search_spaces import LossQuantile, OnsetQuantile, Rate, StuckRate
from attnsweep.search_spaces.measured import NEVER, WORST_LOSS, objective_value

losses = st.none() | st.floats(0, allow_nan=False)
trainings = st.lists(
    st.tuples(st.sampled_from(["solved", "runaway", "diverged"]), st.booleans(), losses), min_size=1, max_size=30
)


@given(trainings, st.floats(0, 1), st.sampled_from(["minimize", "maximize"]))
def test_it_is_finite_and_between_the_extremes(
    rows: list[tuple[str, bool, float | None]], quantile: float, direction: Literal["minimize", "maximize"]
) -> None:
    outcome, stuck, loss = zip(*rows, strict=True)
    most_stuck = objective_value(StuckRate(direction="maximize"), outcome, stuck, loss)
    assert most_stuck == pytest.approx(sum(stuck) / len(stuck))
    assert most_stuck <= objective_value(StuckRate(), outcome, stuck, loss) <= 1
    value = objective_value(LossQuantile(quantile=quantile, direction=direction), outcome, stuck, loss)
    assert math.isfinite(value)
    assert value in {-WORST_LOSS, WORST_LOSS} | {min(each, WORST_LOSS) for each in loss if each is not None}


def test_a_diverged_training_counts_as_the_worst() -> None:
    outcome = ["diverged", "solved", "solved"]
    stuck = [False] * 3
    assert objective_value(LossQuantile(quantile=1.0), outcome, stuck, [None, 1.0, 2.0]) == WORST_LOSS
    assert objective_value(LossQuantile(quantile=0.5), outcome, stuck, [None, 1.0, 2.0]) == 2.0
    assert objective_value(StuckRate(), outcome, stuck, [None, 1.0, 2.0]) == pytest.approx(1 / 3)
    assert objective_value(StuckRate(direction="maximize"), outcome, stuck, [None, 1.0, 2.0]) == 0.0


@pytest.mark.parametrize("reached", [None, 1e9])
def test_a_diverged_training_counts_as_the_worst_also_where_high_losses_are_looked_for(reached: float | None) -> None:
    loss = [reached, 1.0, 2.0]
    for quantile, expected in ((0.0, -WORST_LOSS), (0.5, 1.0), (1.0, 2.0)):
        objective = LossQuantile(quantile=quantile, direction="maximize")
        assert objective_value(objective, ["diverged", "solved", "solved"], [False] * 3, loss) == expected


def test_a_rate_counts_the_trainings_that_end_with_its_outcome() -> None:
    outcome, stuck = ["solved", "solved", "marginal", "plateau", "diverged"], [False, False, True, False, False]
    loss = [0.0] * 5

    def value(objective: Rate) -> float:
        return objective_value(objective, outcome, stuck, loss)

    assert value(Rate("solved")) == 0.4
    assert value(Rate("stuck")) == value(Rate("marginal")) == 0.2
    assert value(Rate("diverged")) == 0.2
    # Those that diverged count as the worst: so the sampler keeps away from them.
    assert value(Rate("plateau", direction="minimize")) == 0.4
    assert value(Rate("stuck", direction="minimize")) == objective_value(StuckRate(), outcome, stuck, loss)


def test_an_onset_is_that_of_the_trainings_that_end_so_and_never_that_of_the_others() -> None:
    outcome, onset = ["solved", "solved", "diverged", "plateau"], [10, 30, 5, 0]

    def value(quantile: float) -> float:
        return objective_value(OnsetQuantile("solved", quantile=quantile), outcome, [False] * 4, [0.0] * 4, onset)

    assert [value(quantile) for quantile in (0.25, 0.5, 0.75)] == [10.0, 30.0, NEVER]
