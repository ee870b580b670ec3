"""Means over seeds: their intervals cover, and a claim agrees only if the whole interval does."""

import math

import numpy as np
import pytest
from scipy import stats

from attnsweep.reproduction.means import mean_difference_row, mean_interval, mean_row, share_row


def test_the_interval_of_a_mean_covers_it() -> None:
    draws = np.random.default_rng(0).normal(3.0, 2.0, size=(2000, 8))
    intervals = [mean_interval(draw.tolist()) for draw in draws]
    assert 0.935 < np.mean([low <= 3.0 <= high for _, low, high in intervals]) < 0.965


def test_the_interval_of_a_difference_is_welchs() -> None:
    values, others = [1.0, 2.0, 3.0, 4.0], [0.0, 4.0, 8.0]
    theirs = stats.ttest_ind(values, others, equal_var=False).confidence_interval()
    assert mean_interval(values, others) == pytest.approx((-1.5, theirs.low, theirs.high))


def test_equal_values_and_lone_ones() -> None:
    assert mean_interval([1.0, 1.0]) == (1.0, 1.0, 1.0)
    assert mean_interval([1.0]) == (1.0, -math.inf, math.inf)
    lone = mean_row("a", [0.5], agrees_within=(0.0, 1.0))
    assert (lone.low, lone.high, lone.agrees) == (None, None, False)


def test_a_claim_agrees_only_if_the_whole_interval_does() -> None:
    values = [0.4, 0.5, 0.6]
    assert mean_row("a", values, agrees_within=(0.0, 1.0)).agrees is True
    assert mean_row("a", values, agrees_within=(0.45, 1.0)).agrees is False
    assert mean_row("a", values).agrees is None
    assert mean_difference_row("a", [2.0, 2.1], [1.0, 1.1], published="more").agrees is True
    assert mean_difference_row("a", [1.0, 1.1], [1.0, 1.1], published="more").agrees is False


def test_a_share_of_seeds() -> None:
    row = share_row("a", 20, 20, published="all", agrees_within=(0.8, 1.0))
    assert row.ours == 1.0
    assert row.low == pytest.approx(0.839, abs=1e-3)
    assert row.agrees is True
    assert share_row("a", 17, 20, published="all", agrees_within=(0.8, 1.0)).agrees is False
