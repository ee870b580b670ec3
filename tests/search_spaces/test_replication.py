"""Sequential replication: its interval is anytime-valid, and the rows alone decide when a trial stops."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from attnsweep.search_spaces import Sequential, Sweep
from attnsweep.search_spaces.confidence_sequence import ERROR_RATE, sequential_interval
from attnsweep.search_spaces.replication import is_complete, max_replicates, n_wanted
from attnsweep.workloads.errors import SpecError
from tests.refusals import refused

RATES = (0.02, 0.1, 0.3, 0.5, 0.9)
RULE = Sequential(width=0.2, threshold=0.5, at_most=120, batch=8)


def _coverage(rate: float, interval: Any) -> float:
    """The exact probability that the interval at which RULE stops contains the rate, without simulation error."""
    chances, covered = np.array([1.0]), 0.0
    step = stats.binom.pmf(np.arange(RULE.batch + 1), RULE.batch, rate)
    for n in range(RULE.batch, RULE.at_most + 1, RULE.batch):
        chances = np.convolve(chances, step)
        low, high = np.array([interval(k, n) for k in range(n + 1)]).T
        ends = (high - low <= RULE.width) | (RULE.threshold < low) | (high < RULE.threshold) | (n == RULE.at_most)
        covered += chances[ends & (low <= rate) & (rate <= high)].sum()
        chances = np.where(ends, 0.0, chances)
    return float(covered)


@pytest.mark.parametrize("rate", RATES)
def test_the_interval_at_the_end_holds_the_rate(rate: float) -> None:
    assert _coverage(rate, sequential_interval) >= 1 - ERROR_RATE


@pytest.mark.slow
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_at_its_ends_the_mixture_is_twenty_times_as_likely(counts: tuple[int, int]) -> None:
    k, n = counts
    low, high = sequential_interval(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert (low == 0) == (k == 0)
    assert (high == 1) == (k == n)
    for end in {low, high} - {0, 1}:
        ratio = stats.betabinom.logpmf(k, n, 0.5, 0.5) - stats.binom.logpmf(k, n, end)
        assert ratio == pytest.approx(np.log(1 / ERROR_RATE), rel=1e-6)
    assert sequential_interval(n - k, n) == pytest.approx((1 - high, 1 - low))


rules = st.builds(
    lambda batch, more: Sequential(width=0.4, at_most=batch + more, batch=batch), *[st.integers(1, 20)] * 2
)


@pytest.mark.scale
@pytest.mark.slow
@given(rules, st.floats(0, 1), st.randoms(use_true_random=False))
def test_rows_decide_whatever_order_they_come_in(rule: Sequential, rate: float, rng: random.Random) -> None:
    ends: list[bool | None] = [rng.choices([True, False, None], [rate, 1 - rate, 0.1])[0] for _ in range(rule.at_most)]
    ended: dict[int, bool | None] = {}
    wanted = n_wanted(rule, ended)
    assert wanted == min(rule.batch, rule.at_most)
    waiting = set(range(wanted))
    while waiting:
        assert not is_complete(rule, ended)
        replicate = rng.choice(sorted(waiting))
        waiting.remove(replicate)
        ended[replicate] = ends[replicate]
        more = n_wanted(rule, dict(rng.sample(sorted(ended.items()), len(ended))))
        assert more >= wanted
        waiting |= set(range(wanted, more))
        wanted = more
    assert is_complete(rule, ended)
    assert sorted(ended) == list(range(wanted))
    assert wanted <= max_replicates(rule)
    # No batch before the last was enough; the last was enough, or the trial reached `at_most`.
    judged = [[stuck for stuck in ends[:n] if stuck is not None] for n in range(rule.batch, wanted, rule.batch)]
    assert not any(rule.is_enough(sum(each), len(each)) for each in judged)
    whole = [stuck for stuck in ends[:wanted] if stuck is not None]
    assert wanted == rule.at_most or not whole or rule.is_enough(sum(whole), len(whole))


@pytest.mark.parametrize(
    ("replicates", "subject"),
    [(0, "replicates"), (2**31, "replicates"), ("8", "replicates"), ({"at_most": 4}, "at_most")],
)
def test_a_mistake_in_replicates_is_named(replicates: object, subject: str) -> None:
    with refused(subject, SpecError):
        Sweep(name="s", workload="category_pairs", space={}, trials=8, replicates=replicates)  # type: ignore[arg-type]
