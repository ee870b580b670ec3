"""Evidence: of a false statement it is at most 1 on average, exactly; a true one is found."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from attnsweep.orchestrator.analysis.evidence import (
    Numbers,
    above,
    below,
    median_interval,
    medians_not_ordered,
    medians_ordered,
    ordered,
)

Pair = Callable[[Numbers, Numbers, float, float], float]

N = 12
COUNTS = np.arange(N + 1)


@pytest.mark.parametrize("bound", [0.05, 0.5, 0.9])
def test_evidence_for_a_rate_averages_one_at_the_bound_and_less_beyond(bound: float) -> None:
    for evidence, beyond in ((above, bound / 2), (below, (1 + bound) / 2)):
        values = np.exp(evidence(COUNTS, N, bound))
        assert stats.binom.pmf(COUNTS, N, bound) @ values == pytest.approx(1)
        assert stats.binom.pmf(COUNTS, N, beyond) @ values < 1


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.4])
def test_evidence_for_an_order_of_rates_averages_at_most_one_where_it_is_false(factor: float) -> None:
    values = np.exp([[ordered(k, other, N, factor) for other in range(N + 1)] for k in range(N + 1)])
    means = [
        stats.binom.pmf(COUNTS, N, lower) @ values @ stats.binom.pmf(COUNTS, N, upper)
        for upper in np.linspace(0.02, 0.98, 25)
        for lower in (factor * upper, 1.1 * factor * upper)
        if lower < 1
    ]
    assert len(means) > 15
    assert max(means) <= 1 + 1e-9
    # At a true one it grows.
    truly = stats.binom.pmf(COUNTS, N, 0.1 * factor) @ values @ stats.binom.pmf(COUNTS, N, 0.9)
    assert truly > 20


def least(low: Numbers, high: Numbers, is_null: Callable[[float, float], bool], evidence: Pair) -> float:
    """The least evidence over all pairs of medians that are null, one by one."""
    steps = np.arange(1, 20) / 2
    return min(evidence(low, high, x, y) for x in steps for y in steps if is_null(x, y))


def apart(low: Numbers, high: Numbers, x: float, y: float) -> float:
    """That the first median is below x and the second above y."""
    return float(above(np.sum(low < x), low.size, 0.5) + below(np.sum(high <= y), high.size, 0.5))


def test_evidence_for_an_order_of_medians_is_the_least_over_all_medians_without_it() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        lower, upper = rng.integers(1, 7, 9).astype(float), rng.integers(3, 10, 7).astype(float)
        found = medians_ordered(lower, upper, 100)
        assert found == pytest.approx(least(lower, upper, lambda x, y: x >= y, apart))
        found = medians_not_ordered(upper, lower, 100)
        assert found == pytest.approx(least(lower, upper, lambda y, x: x < y, apart))


def test_the_interval_of_a_median_is_between_steps_that_were_seen() -> None:
    steps = np.concatenate([np.arange(1.0, 61.0), np.full(3, np.inf)])
    low, high = median_interval(steps, 0.95)
    assert low < 32 < high
    assert {low, high} <= {*steps}
    assert median_interval(np.full(40, np.inf), 0.95) == (math.inf, math.inf)
    assert median_interval(np.array([]), 0.95) == (0, math.inf)
