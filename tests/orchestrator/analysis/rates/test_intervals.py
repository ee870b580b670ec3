"""Rates with their intervals: of one trial, pooled over trials, and as the mean of trials."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from attnsweep.orchestrator.analysis.rates.intervals import NOTHING, Rate, binomial_rate, mean_rate, pooled_rate
from attnsweep.search_spaces.confidence_sequence import sequential_interval
from tests.present import present


@given(st.lists(st.integers(0, 1), min_size=1, max_size=60))
def test_trials_of_one_training_have_plain_wilson_intervals(ends: list[int]) -> None:
    rate = pooled_rate([(1, end) for end in ends])
    plain = stats.binomtest(sum(ends), len(ends)).proportion_ci(method="wilson")
    assert (rate.low, rate.high) == pytest.approx((plain.low, plain.high), abs=1e-12)


@pytest.mark.slow
@given(st.lists(st.integers(1, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=1))
def test_pooling_never_narrows_and_never_counts_less_than_its_trials(counts: list[tuple[int, int]]) -> None:
    rate = pooled_rate(counts)
    share, low, high = present(rate.interval)
    _, plain_low, plain_high = present(binomial_rate(rate.k, rate.n).interval)
    assert low <= plain_low + 1e-12
    assert plain_high - 1e-12 <= high
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1


def test_replicates_that_always_agree_count_once_per_trial() -> None:
    once = stats.binomtest(3, 12).proportion_ci(method="exact")
    agreeing = pooled_rate([(16, 16)] * 3 + [(16, 0)] * 9)
    assert (agreeing.low, agreeing.high) == pytest.approx((once.low, once.high))
    many = pooled_rate([(16, 16)] * 12 + [(16, 0)] * 18)
    assert (many.low, many.high) == pytest.approx((binomial_rate(12, 30).low, binomial_rate(12, 30).high), abs=0.01)
    never = binomial_rate(0, 12)
    assert pooled_rate([(16, 0)] * 12).high == pytest.approx(never.high)


def test_one_trial_has_the_interval_that_it_was_stopped_by() -> None:
    assert mean_rate([(40, 3), (0, 0)]) == Rate(40, 3, 3 / 40, *sequential_interval(3, 40))
    assert pooled_rate([(8, 3)]) == binomial_rate(3, 8)
    assert mean_rate([]) == pooled_rate([(0, 0)]) == NOTHING
