"""Borders: where half of the trainings have a property, what moves that place, and whether intervals cover it."""

import contextlib
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from attnsweep.reproduction.studies import mission_pairs
from attnsweep.reproduction.studies.borders import BorderModel, fit_border, half_point, products
from attnsweep.reproduction.studies.mission_pairs import DTYPES, SCALES, Trials, derived_factors, moved, one_border
from attnsweep.reproduction.studies.translators import _labelled_rows, planted
from attnsweep.workloads.diagnostics.roles.sentences import Sentences

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


BORDER, FACTOR, STEEPNESS = 0.01, 2.5, 8.0
N_TRIALS, N_REPLICATES = 256, 4


def trials(seed: int, correlation: float) -> tuple[Floats, Floats, Floats]:
    """Trials whose border is 2.5 times as far with the first term and does not depend on the second: sigma, terms, k.

    The shares of the trials scatter as a beta distribution does, with this intra-trial correlation.
    """
    random = np.random.default_rng(seed)
    sigma = 10 ** random.uniform(-4, 0, N_TRIALS)
    terms = random.integers(0, 2, (N_TRIALS, 2)).astype(np.float64)
    share = 1 / (1 + (sigma / BORDER / FACTOR ** terms[:, 0]) ** STEEPNESS)
    size = 1 / correlation - 1
    share = random.beta(np.maximum(size * share, 1e-9), np.maximum(size * (1 - share), 1e-9))
    return sigma, terms, random.binomial(N_REPLICATES, share).astype(np.float64)


def fitted(seed: int, correlation: float = 0.4) -> BorderModel:
    sigma, terms, k = trials(seed, correlation)
    return fit_border(sigma, terms, np.full(N_TRIALS, float(N_REPLICATES)), k)


def test_intervals_of_a_sharp_border_cover_it() -> None:
    models = []
    for seed in range(120):
        with contextlib.suppress(ValueError):  # One of them has no slope that is known.
            models.append(fitted(seed))
    assert len(models) > 115
    covered = np.mean(
        [
            [low <= truth <= high for (_, low, high), truth in zip(found, (BORDER, FACTOR, 1.0), strict=True)]
            for found in ([each.border(np.zeros(2)), each.factor(0), each.factor(1)] for each in models)
        ],
        axis=0,
    )
    assert (covered >= 0.9).all()  # The plain sandwich covers 0.82 to 0.86.
    assert np.median([each.factor(0)[0] for each in models]) == pytest.approx(FACTOR, rel=0.05)
    assert np.mean([each.p_value([0]) < 0.05 for each in models]) > 0.95
    assert np.mean([each.p_value([1]) < 0.05 for each in models]) <= 0.1


def test_units_of_a_term_multiply_its_factor() -> None:
    model = fitted(0)
    assert model.factor(0, 2.0) == pytest.approx([each**2 for each in model.factor(0)])


@pytest.mark.parametrize("is_separated", [True, False])
def test_trials_without_a_slope_have_no_border(is_separated: bool) -> None:
    sigma = np.geomspace(1e-4, 1, 40)
    k = np.where(sigma < 0.01, 4.0, 0.0) if is_separated else np.tile([1.0, 3.0], 20)
    with pytest.raises(ValueError, match="the effect of sigma cannot be estimated"):
        fit_border(sigma, np.zeros((40, 0)), np.full(40, 4.0), k)


def test_an_interaction_is_the_product_of_each_column_with_each() -> None:
    parts = {"a": np.array([[1.0], [2.0]]), "b": np.array([[3.0, 5.0], [7.0, 11.0]])}
    assert products(parts, ("a", "b")).tolist() == [[3.0, 5.0], [14.0, 22.0]]


def test_the_derived_border_is_where_a_product_of_three_factors_is_lost() -> None:
    found = derived_factors(0.9)
    assert found["float32"] == pytest.approx((0.9 * 2**-24 / 1e-9) ** 0.25)  # In float64 the tolerance decides.
    assert found["scale inv_sqrt_d"] == pytest.approx(20**0.25)
    assert found["scale log_n_inv_sqrt_d"] == pytest.approx((np.sqrt(20) / np.log(20)) ** 0.5)


def three_words() -> Sentences:
    words, tokens = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[0, 1, 2]])
    return Sentences(
        queries=words, keys=words, query_tokens=tokens, key_tokens=tokens, rarity=torch.arange(3), n_frequent=1
    )


@pytest.mark.parametrize("offset", [-1, 1])
def test_attention_is_planted_where_there_is_a_key(offset: int) -> None:
    attention = torch.eye(3).reshape(1, 1, 1, 3, 3)
    found = planted(attention, three_words(), offset, 0.25)[0, 0, 0]
    expected = 0.75 * torch.eye(3) + 0.25 * torch.diag(torch.ones(2), offset)
    edge = 0 if offset < 0 else 2
    expected[edge, edge] = 1.0
    assert torch.equal(found, expected)


def test_heads_of_one_training_are_not_taken_as_independent() -> None:
    """Of twelve trainings, six have four heads that look at their own position, and six have none."""
    looks_at = torch.stack([torch.eye(3), torch.full((3, 3), 1 / 3)])
    attention = looks_at.repeat_interleave(6, dim=0).reshape(12, 1, 1, 3, 3).expand(12, 4, 1, 3, 3)
    for row in _labelled_rows(
        [(layer, attention, three_words()) for layer in ("encoder_self", "decoder_self")], mass=0.0
    ):
        expected = stats.binomtest(6, 12).proportion_ci(method="exact")
        assert (row.ours, row.low, row.high) == pytest.approx((0.5, expected.low, expected.high))


def planted_pairs(n_trials: int) -> Trials:
    """Trials whose border is 0.0075 in float64 with scale one, and elsewhere by the derived factors; it is sharp."""
    random = np.random.default_rng(2)
    sigma = 10 ** random.uniform(-4, 0, n_trials)
    scale, dtype = random.choice(SCALES, n_trials), random.choice(DTYPES, n_trials)
    factors = derived_factors(0.9)
    border = 0.0075 * np.array([factors.get(f"scale {each}", 1.0) for each in scale])
    border *= np.where(dtype == "float32", factors["float32"], 1.0)
    n, is_zero = np.full(n_trials, 4.0), sigma < border
    loss = np.where(is_zero, 0.9, np.nan)
    return Trials(sigma, sigma, scale, dtype, np.full(n_trials, "solution_1"), n, n * is_zero, n * ~is_zero, loss)


def test_trials_moved_by_the_derived_factors_have_one_border() -> None:
    trials = planted_pairs(128)
    assert ((moved(trials) < 0.0075) == (trials.n_zero > 0)).all()
    found = one_border(trials)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.0075 < found.high < 1.5 * found.low


def test_a_sampler_is_judged_by_what_its_trials_found() -> None:
    trials = planted_pairs(64)
    rows = {row.name: row.ours for row in mission_pairs.rows_of(trials)}
    is_free = trials.n_zero == 0
    found = rows["trials of 64, and of the last 16: no training ends at the zero"]
    assert found == f"{is_free.sum()}, {is_free[-16:].sum()}"
    away = np.median(np.abs(np.log10(moved(trials)[-16:] / 0.0075)))
    assert rows["median distance of the last 16 from the border, decades"] == pytest.approx(away, abs=0.1)
