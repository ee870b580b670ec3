"""The value at which half of the trainings have a property: where it is, and whether its interval covers it."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from attnsweep.reproduction.studies.borders import half_point

Floats = NDArray[np.float64]


@pytest.mark.simulation
@pytest.mark.parametrize("towards", [1, -1])
def test_the_border_is_covered_where_the_curve_is_not_logistic_and_no_value_is_near(towards: int) -> None:
    """Two clusters of trials on either side of the border, as the sampler `boundary` may leave them."""
    values = np.repeat(np.array([-2.0, -0.9, -0.8, 0.45, 0.5, 2.0]), 16)
    share = 0.5 ** np.exp(1.5 * values) if towards == 1 else 1 - 0.5 ** np.exp(-1.5 * values)
    n_covered, random = 0, np.random.default_rng(0)
    for _ in range(60):
        _, low, high = half_point(values, (random.random(values.size) < share).astype(float))
        n_covered += low <= 0 <= high
    assert n_covered >= 54


@pytest.mark.slow
def test_the_border_of_a_logistic_share_is_found() -> None:
    x = np.linspace(-4, 4, 400)
    holds = np.random.default_rng(0).random(400) < 1 / (1 + np.exp(3 * (x - 0.7)))
    border, low, high = half_point(x, holds.astype(float))
    assert low < 0.7 < high
    assert high - low < 1
    assert math.isclose(border, 0.7, abs_tol=0.4)


def test_the_border_of_pooled_groups_is_that_of_any_share_that_falls() -> None:
    """Three groups with borders of their own: the best curve's interval is [-1.08, -0.62], the logistic border -0.6."""
    x = np.linspace(-4, 4, 41)
    share = np.array([0.3, 0.5, 0.2]) @ (1 / (1 + np.exp(4 * (x - np.array([[0.0], [-2.0], [2.0]])))))
    is_held = np.arange(10)[:, np.newaxis] < np.round(10 * share)
    border, low, high = half_point(np.tile(x, 10), is_held.ravel().astype(float))
    truth = np.interp(-0.5, -share, x)
    assert low < min(border, truth) < max(border, truth) < high
    assert low < -1.2
    assert high > -0.3


def _trials(random: np.random.Generator, n_trials: int, slope: float, correlation: float) -> tuple[Floats, Floats]:
    """Four trainings for each trial over four decades, with the border at 0 and a slope in logits a decade."""
    value = random.uniform(-2, 2, n_trials)
    share = 1 / (1 + np.exp(slope * value))
    if correlation:
        strength = 1 / correlation - 1
        share = random.beta(np.maximum(share * strength, 1e-12), np.maximum((1 - share) * strength, 1e-12))
    holds = np.arange(4) < random.binomial(4, share)[:, np.newaxis]
    return np.repeat(value, 4), holds.ravel().astype(np.float64)


def test_trainings_that_all_end_like_their_trial_add_nothing() -> None:
    x, holds = _trials(np.random.default_rng(3), 60, 3.0, 0.999)
    _, low, high = half_point(x, holds, of_trials=True)
    _, low_once, high_once = half_point(x[::4], holds[::4], of_trials=True)
    assert (low, high) == pytest.approx((low_once, high_once), abs=0.15)
    _, low, high = half_point(x, holds)
    assert high - low < 0.75 * (high_once - low_once)


def test_separated_trials_count_as_one_training_each() -> None:
    value = np.linspace(-2, 2, 20)
    holds = (value < 0).astype(np.float64)
    _, low, high = half_point(np.repeat(value, 4), np.repeat(holds, 4), of_trials=True)
    assert (low, high) == half_point(value, holds)[1:]
    assert half_point(np.repeat(value, 4), np.repeat(holds, 4))[1] > low


@pytest.mark.parametrize("of_trials", [False, True])
def test_a_share_that_does_not_cross_one_half_has_no_border(of_trials: bool) -> None:
    value = np.repeat(np.linspace(-2, 2, 5), 4)
    border, low, high = half_point(value, np.ones(20), of_trials=of_trials)
    assert (border, high) == (math.inf, math.inf)
    assert low > 1
    border, low, high = half_point(value, np.zeros(20), of_trials=of_trials)
    assert (border, low) == (-math.inf, -math.inf)
    assert high < -1


def test_the_border_of_few_trainings_lies_within_its_interval() -> None:
    """The last trial has three of four; the second sweep has its border in a gap of a few parts of the coarse grid."""
    few = np.repeat([-1.9, -0.8, -0.3], 4), np.array([1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1.0])
    value = np.array([-13.0, -6.56, -6.54, -6.34, -6.33, 0.0])
    sharp = np.repeat(value, 32), (np.arange(32) < np.array([32, 22, 22, 10, 10, 0])[:, np.newaxis]).ravel()
    for x, holds in (few, sharp):
        border, low, high = half_point(x, holds.astype(np.float64))
        assert low < border < high
    assert border == pytest.approx(-6.44, abs=0.01)
    assert half_point(*few)[0] > -0.3


@pytest.mark.scale
@pytest.mark.parametrize(
    ("n_trials", "slope", "correlation"), [(32, 6, 0.0), (32, 6, 0.4), (32, 14, 0.4), (64, 6, 0.4), (128, 6, 0.4)]
)
def test_the_border_is_covered_where_the_trainings_of_a_trial_end_alike(
    n_trials: int, slope: float, correlation: float
) -> None:
    random, covers = np.random.default_rng(1), {True: 0, False: 0}
    for _ in range(200):
        x, holds = _trials(random, n_trials, slope, correlation)
        for of_trials in covers:
            _, low, high = half_point(x, holds, of_trials=of_trials)
            covers[of_trials] += low <= 0 <= high
    assert covers[True] / 200 > 0.91
    assert correlation == 0 or covers[False] < 175
