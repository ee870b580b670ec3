"""Intervals of means between known ends: they cover, also where the sample shows no spread."""

import numpy as np
import pytest
from scipy import stats

from attnsweep.reproduction.rows import bounded_difference_row, bounded_mean_intervals, bounded_mean_row

ACCURACIES = (0.0, 1.0)


@pytest.mark.parametrize("n_seeds", [20, 100])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.98, 1.0])
def test_it_covers_the_mean_of_accuracies_near_one_half_or_1(share: float, n_seeds: int) -> None:
    rng = np.random.default_rng(0)
    learned = rng.random((200, n_seeds)) < share
    n_wrong = np.where(learned, rng.binomial(100, 0.003, learned.shape), rng.binomial(100, 0.5, learned.shape))
    truth = share * 0.997 + (1 - share) * 0.5
    _, low, high = bounded_mean_intervals(1 - n_wrong / 100, ACCURACIES)
    assert np.mean((low <= truth) & (truth <= high)) >= 0.95


@pytest.mark.parametrize("n_with", [0, 1, 7, 20])
def test_of_zeros_and_ones_it_is_clopper_and_pearsons(n_with: int) -> None:
    row = bounded_mean_row("a", [1.0] * n_with + [0.0] * (20 - n_with), ACCURACIES)
    exact = stats.binomtest(n_with, 20).proportion_ci(method="exact")
    assert (row.ours, row.low, row.high) == pytest.approx((n_with / 20, exact.low, exact.high), abs=0.01)


def test_equal_values_and_lone_ones_have_an_interval() -> None:
    equal, lone = bounded_mean_row("a", [1.0] * 100, ACCURACIES), bounded_mean_row("a", [0.5], ACCURACIES)
    assert equal.low == pytest.approx(0.963, abs=0.005)
    assert equal.high == 1.0
    assert lone.low == pytest.approx(0.0, abs=0.05)
    assert lone.high == pytest.approx(1.0, abs=0.05)


def test_a_difference_is_that_of_the_two_means() -> None:
    row = bounded_difference_row("a", [1.0] * 60 + [0.5] * 40, [0.5] * 100, ACCURACIES)
    assert row.ours == pytest.approx(0.3)
    assert row.low is not None
    assert row.high is not None
    assert 0.2 < row.low < 0.26
    assert 0.34 < row.high < 0.4
    swapped = bounded_difference_row("a", [0.5] * 100, [1.0] * 60 + [0.5] * 40, ACCURACIES)
    assert (swapped.low, swapped.high) == pytest.approx((-row.high, -row.low), abs=0.01)
