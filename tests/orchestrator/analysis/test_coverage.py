"""Every interval covers the truth in about 95% of simulated sweeps, whose trials differ from each other."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.difference import RateDifference, paired_difference, unpaired_difference
from attnsweep.orchestrator.analysis.onset_times import CurvePoint, OnsetTimes
from attnsweep.orchestrator.analysis.phase.diagram import fit_phase_diagram
from attnsweep.orchestrator.analysis.phase.surface import PlaneAxis, TrialCounts
from attnsweep.orchestrator.analysis.rates.intervals import Rate, binomial_rate, mean_rate, pooled_rate
from attnsweep.search_spaces import Sequential
from tests.orchestrator.analysis.test_onset_times import share_by_step
from tests.orchestrator.small_sweep import sequential_counts
from tests.present import present

pytestmark = pytest.mark.simulation

LEAST, MOST = 0.91, 0.995
"""The accepted coverage: three standard errors of 250 simulations around 95%, plus a margin for few trials."""


Array = NDArray[np.float64]


RULE = Sequential(width=0.35, at_most=96, batch=8)
PLACES = np.array([[0.0, 0.5, -0.8], [0.0, 0.5, 0.6]])


def _band(x: Array, y: Array, n: Array, k: Array, weight: Array, places: Array) -> tuple[Array, Array]:
    """The band of a phase diagram over -1..1 at the places, (2, P)."""
    axes = PlaneAxis("x", False, -1, 1), PlaneAxis("y", False, -1, 1)
    _, low, high = fit_phase_diagram(*axes, TrialCounts(x, y, n, k), weight).at(*places)
    return low, high


def _covers(found: Rate | RateDifference, truth: float) -> bool:
    _, low, high = present(found.interval)
    return low <= truth <= high


def _chances(rng: np.random.Generator, rate: Array | float, size: int, correlation: float = 0.4) -> Array:
    strength = 1 / correlation - 1
    return rng.beta(np.asarray(rate) * strength, (1 - np.asarray(rate)) * strength, size)


@pytest.mark.parametrize(
    ("n_trials", "n_replicates", "rate", "correlation", "are_alike"),
    [
        (3, 16, 0.5, 0.6, False),
        (5, 16, 0.5, 0.6, False),
        (40, 8, 0.2, 0.4, False),
        (120, 8, 0.05, 0.4, False),
        (14, 16, 0.1, 0.6, False),
        # Nearly all trials end alike: Wilson's interval at the effective number covers 0.88, 0.87, 0.89 and 0.91.
        (16, 4, 0.01, 0.9, True),
        (32, 8, 0.03, 0.4, True),
        (128, 8, 0.01, 0.4, True),
        (256, 16, 0.01, 0.4, True),
    ],
)
def test_pooled_rates_cover(n_trials: int, n_replicates: int, rate: float, correlation: float, are_alike: bool) -> None:
    rng = np.random.default_rng(7)
    stuck = rng.binomial(n_replicates, _chances(rng, rate, 400 * n_trials, correlation)).reshape(400, n_trials).tolist()
    covered = np.mean([_covers(pooled_rate([(n_replicates, k) for k in row]), rate) for row in stuck])
    if are_alike:
        assert covered > 0.93
        return
    assert LEAST < covered < MOST
    assert np.mean([_covers(binomial_rate(sum(row), n_replicates * n_trials), rate) for row in stuck]) < 0.75


def test_pooled_rates_have_the_width_of_a_cluster_bootstrap() -> None:
    rng = np.random.default_rng(2)
    k = rng.binomial(8, _chances(rng, 0.3, 150))
    resampled = k[rng.integers(0, 150, (4000, 150))].mean(axis=1) / 8
    low, high = np.quantile(resampled, [0.025, 0.975])
    rate = pooled_rate([(8, int(each)) for each in k])
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=0.1 * (high - low))


def test_mean_rates_cover_where_trials_chose_how_many_they_needed() -> None:
    """Trials with different rates, each trained until its interval is narrow: pooled trainings miss the mean rate."""
    rng = np.random.default_rng(11)
    mean, pooled = [], []
    for _ in range(200):
        counts = [sequential_counts(RULE, rate, rng) for rate in rng.beta(0.3, 0.9, 12)]
        mean.append(mean_rate(counts))
        pooled.append(pooled_rate(counts))
    assert np.mean([_covers(each, 0.25) for each in mean]) > 0.91
    assert np.mean([present(each.share) for each in mean]) == pytest.approx(0.25, abs=0.03)
    assert np.mean([each.share for each in pooled]) > 0.3


@pytest.mark.parametrize("n_trials", [30, 80])
def test_the_band_of_a_phase_diagram_covers(n_trials: int) -> None:
    rng = np.random.default_rng(3)
    covered, n = [], np.full(n_trials, 8.0)

    def chance(x: Array, y: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-(0.3 + 1.5 * x - y + 0.5 * x * y - 0.6 * x**2 + 0.4 * y**2))))

    for _ in range(100):
        x, y = rng.uniform(-1, 1, (2, n_trials))
        x[:2], y[:2] = (-1, 1), (-1, 1)
        k = rng.binomial(8, _chances(rng, chance(x, y), n_trials)).astype(float)
        low, high = _band(x, y, n, k, n, PLACES)
        covered.append((low <= chance(*PLACES)) & (chance(*PLACES) <= high))
    assert LEAST < np.mean(covered) < MOST


_BORDERS: dict[str, tuple[Callable[[Array, Array], Array], Array]] = {
    # The logit over the square -1..1, and places on the border: y by x.
    "sharp": (lambda x, y: -24 * (x - 0.15 * y + 0.1), np.array([[-0.2, -0.1, 0.0], [-2 / 3, 0.0, 2 / 3]])),
    "folded": (lambda x, y: 16 * (0.35 - abs(y - 0.9 * x**2 + 0.3)), np.array([[-0.5, 0, 0.6], [0.275, 0.05, -0.326]])),
    "step": (lambda x, y: 40 * np.sign(y - 0.3 * np.sin(3 * x)), np.array([[-0.5, 0, 0.6], [-0.29925, 0, 0.29215]])),
}


@pytest.mark.sample("folded-100")
@pytest.mark.parametrize(("border", "n_trials"), [("sharp", 32), *itertools.product(_BORDERS, (100, 1000, 10_000))])
def test_the_band_of_a_border_covers_what_is_sharp_or_folded(border: str, n_trials: int) -> None:
    """A quadratic surface covers the fold in half of the cases."""
    logit, places = _BORDERS[border]
    rng = np.random.default_rng(4)
    covered = []
    for _ in range((10_000 if n_trials < 1000 else 30_000) // n_trials):
        x, y = rng.uniform(-1, 1, (2, n_trials))
        chance = np.clip(1 / (1 + np.exp(-logit(x, y))), 1e-9, 1 - 1e-9)
        k = rng.binomial(8, _chances(rng, chance, n_trials)).astype(float)
        n = np.full(n_trials, 8.0)
        low, high = _band(x, y, n, k, n, places)
        covered.append((low <= 0.5) & (high >= 0.5))
    assert np.mean(covered) > LEAST


def test_the_band_covers_where_trials_chose_how_many_they_needed() -> None:
    """Each trial counts the same. Weighted by trainings, trials near one half would pull the surface towards it."""
    rng = np.random.default_rng(8)

    def chance(x: Array, y: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(1.0 - 0.8 * x + 0.6 * y)))

    covered: dict[str, list[NDArray[np.bool_]]] = {"same": [], "by trainings": []}
    for _ in range(60):
        x, y = rng.uniform(-1, 1, (2, 80))
        x[:2], y[:2] = (-1, 1), (-1, 1)
        rates = _chances(rng, chance(x, y), 80)
        n, k = np.array([sequential_counts(RULE, rate, rng) for rate in rates], dtype=np.float64).T
        for name, weight in (("same", np.full(80, n.mean())), ("by trainings", n)):
            low, high = _band(x, y, n, k, weight, PLACES)
            covered[name].append((low <= chance(*PLACES)) & (chance(*PLACES) <= high))
    assert 0.88 < np.mean(covered["same"]) < MOST
    assert np.mean(covered["by trainings"]) < 0.8


@pytest.mark.parametrize(("n_trials", "n_replicates", "censored"), [(10, 12, 1 / 3), (40, 6, 1 / 4)])
def test_curves_of_onset_cover_where_budgets_differ(n_trials: int, n_replicates: int, censored: float) -> None:
    rng = np.random.default_rng(4)
    trial = np.repeat(np.arange(n_trials), n_replicates)
    covered = []
    for _ in range(250):
        chance = np.repeat(_chances(rng, 0.4, n_trials), n_replicates)
        step = np.where(rng.random(trial.size) < chance, rng.choice([10, 20], trial.size), 40)
        end = np.where(rng.random(trial.size) < censored, 15, 40)
        came = (step <= end) & (step < 40)
        point = [each for each in share_by_step(np.minimum(step, end), came, trial) if each.step <= 20][-1]
        covered.append(point.low <= 0.4 <= point.high)
    assert LEAST < np.mean(covered) < MOST


@pytest.mark.parametrize("n_trials", [10, 60])
def test_medians_of_onset_cover_where_probes_are_rare_and_differ(n_trials: int) -> None:
    """Half of the trainings have probes every 40 steps, the others every 100; taking the step of the next probe as
    exact misses the true median, 130."""
    rng = np.random.default_rng(10)
    trial = np.repeat(np.arange(n_trials), 4)
    gap, both, late = np.where(trial % 2, 40, 100), [], []
    for _ in range(250):
        true = np.ceil(130 * np.exp(np.repeat(rng.normal(0, 0.3, n_trials), 4) + rng.normal(0, 0.3, trial.size)))
        step = (np.ceil(true / gap) * gap).astype(int)
        end = np.where(rng.random(trial.size) < 0.3, 200, 1000)
        came = step <= end
        times = OnsetTimes(trial, np.minimum(step, end), came, np.where(came, step - gap, end))
        half = times.half(once_per_trial=False)
        both.append((half["low"] or 0) < 130 <= (half["high"] or np.inf))
        exact = OnsetTimes(trial, times.step, came, times.step - 1).half(once_per_trial=False)
        late.append((exact["low"] or 0) < 130 <= (exact["high"] or np.inf))
    assert np.mean(both) > LEAST
    assert n_trials < 60 or np.mean(late) < 0.8


def test_curves_of_onset_cover_where_trials_chose_how_many_they_needed() -> None:
    """Each trial must count once, because trials with rates near one half have more trainings."""
    rng = np.random.default_rng(9)
    rule = Sequential(width=0.4, at_most=64, batch=8)
    once: list[CurvePoint] = []
    pooled: list[CurvePoint] = []
    for _ in range(300):
        counts = [sequential_counts(rule, rate, rng) for rate in rng.beta(0.3, 0.9, 40)]
        trial = np.repeat(np.arange(40), [n for n, _ in counts])
        comes = np.concatenate([np.arange(n) < k for n, k in counts])
        step = np.where(comes, rng.choice([10, 20], trial.size), 40)
        end = np.where(rng.random(trial.size) < 1 / 4, 15, 40)
        history = np.minimum(step, end), (step <= end) & comes, trial
        for found, once_per_trial in ((once, True), (pooled, False)):
            curve = share_by_step(*history, once_per_trial=once_per_trial)
            found.append([each for each in curve if each.step <= 20][-1])
    assert LEAST < np.mean([each.low <= 0.25 <= each.high for each in once]) < MOST
    assert np.mean([each.share for each in once]) == pytest.approx(0.25, abs=0.015)
    assert np.mean([each.low <= 0.25 <= each.high for each in pooled]) < 0.7


@pytest.mark.sample("12-0.2-0.05")
@pytest.mark.parametrize(
    ("n_trials", "up", "down"), [(12, 0.2, 0.05), (32, 0.2, 0.05), (32, 0.02, 0.01), (8, 0.3, 0.1)]
)
def test_differences_of_pairs_cover(n_trials: int, up: float, down: float) -> None:
    rng = np.random.default_rng(5)
    cluster = np.repeat(np.arange(n_trials), 8)
    covered, width, value = [], [], []
    for _ in range(250):
        draw = rng.random(cluster.size)
        comes = draw < np.repeat(rng.beta(2 * up, 2 * (1 - up), n_trials), 8)
        ceases = (draw > 1 - np.repeat(rng.beta(2 * down, 2 * (1 - down), n_trials), 8)) & ~comes
        # Some of the unchanged pairs are stuck in both.
        before = ceases | (~comes & (rng.random(cluster.size) < 0.3))
        after = comes | (before & ~ceases)
        found = paired_difference(before, after, cluster, pooled_rate)
        middle, low, high = present(found.interval)
        covered.append(low <= up - down <= high)
        width.append(high - low)
        value.append(middle)
    assert np.mean(covered) > LEAST
    # In most draws of the rarest changes, fewer than 8 trials differ from the rest: each then counts once, by the exact
    # interval, which is wide. Elsewhere coverage exceeds 95% if few pairs change, but not because the interval is wide.
    if up > 0.02:
        assert np.mean(width) < 2 * 2 * 1.96 * np.std(value)


def test_differences_of_trainings_that_are_not_paired_cover() -> None:
    rng = np.random.default_rng(6)
    covered = []
    for _ in range(500):
        before, after = (rng.binomial(8, _chances(rng, rate, n)) for rate, n in ((0.2, 30), (0.35, 20)))
        found = unpaired_difference([(8, int(k)) for k in before], [(8, int(k)) for k in after], pooled_rate)
        covered.append(_covers(found, 0.15))
    assert LEAST < np.mean(covered) < MOST


def test_differences_cover_where_trials_chose_how_many_they_needed() -> None:
    """The difference between a sweep with fixed and one with sequential replicates, otherwise equal."""
    rng = np.random.default_rng(7)
    once, pooled = [], []
    for _ in range(200):
        before = [(8, int(rng.binomial(8, rate))) for rate in rng.beta(0.3, 0.9, 60)]
        after = [sequential_counts(RULE, rate, rng) for rate in rng.beta(0.3, 0.9, 60)]
        once.append(unpaired_difference(before, after, mean_rate).is_shown)
        pooled.append(unpaired_difference(before, after, pooled_rate).is_shown)
    assert 1 - MOST < np.mean(once) < 1 - LEAST
    assert np.mean(pooled) > 0.3


@pytest.mark.scale
def test_differences_of_pairs_cover_where_trials_chose_how_many_they_needed() -> None:
    """Each configuration counts the same, because those near one half change most often and have the most pairs."""
    rng = np.random.default_rng(10)
    truth = 0.25 - 0.25 * 1.3 / 2.2
    differences: dict[str, list[RateDifference]] = {"once": [], "by pairs": []}
    for _ in range(150):
        rates = rng.beta(0.3, 0.9, 40)
        n, k = np.array([sequential_counts(RULE, rate, rng) for rate in rates]).T
        cluster = np.repeat(np.arange(40), n)
        before = np.concatenate([np.arange(size) < stuck for size, stuck in zip(n, k, strict=True)])
        # A share of the trainings that were not stuck; it is larger where more were stuck.
        after = before | (rng.random(cluster.size) < np.repeat(rates, n))
        for name, pool in (("once", mean_rate), ("by pairs", pooled_rate)):
            found = paired_difference(before, after, cluster, pool)
            differences[name].append(found)
    assert np.mean([_covers(each, truth) for each in differences["once"]]) > LEAST
    once, by_pairs = (np.mean([present(each.difference) for each in found]) for found in differences.values())
    assert once == pytest.approx(truth, abs=0.01)
    assert abs(by_pairs - truth) > 0.02
