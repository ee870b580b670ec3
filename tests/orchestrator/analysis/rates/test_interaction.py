"""The test of interaction: against an independent implementation, and where there is nothing to test."""

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.rates.interaction import adjusted, interaction_test

Counts = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]


def _trials(shift: float, n_trials: int = 60) -> Counts:
    """Trials of 8 trainings in 2 x 3 cells; `shift` is the interaction of the second bins, in log odds."""
    rng = np.random.default_rng(5)
    first, second = rng.integers(2, size=n_trials), rng.integers(3, size=n_trials)
    chance = 1 / (1 + np.exp(-(0.8 * first - 0.5 * second + shift * first * (second == 1))))
    return np.full(n_trials, 8.0), rng.binomial(8, chance).astype(float), first, second


def test_it_is_the_robust_score_test_of_statsmodels() -> None:
    n, k, first, second = _trials(0.7)
    main = np.column_stack([np.ones(60), first, second == 1, second == 2]).astype(float)
    extra = np.column_stack([first * (second == 1), first * (second == 2)]).astype(float)
    fitted = sm.GLM(np.column_stack([k, n - k]), main, family=sm.families.Binomial()).fit()
    # Theirs subtracts the mean of the scores from each before it takes their variance.
    theirs = fitted.score_test(exog_extra=extra, cov_type="HC0").statistic
    found = interaction_test(n, k, first, second, np.arange(60))
    assert found.degrees == 2
    assert 59 / 60 * found.statistic / (1 - found.statistic / 60) == pytest.approx(theirs, rel=1e-6)


def test_a_planted_interaction_is_found_and_its_absence_is_not() -> None:
    for shift, is_found in ((2.0, True), (0.0, False)):
        n, k, first, second = _trials(shift)
        p = interaction_test(n, k, first, second, np.arange(60)).p
        assert p is not None
        assert (p < 0.01) is is_found


def test_rows_of_one_cluster_count_together() -> None:
    n, k, first, second = _trials(0.7)
    once = interaction_test(n, k, first, second, np.arange(60))
    halves = np.tile(n / 2, 2), np.concatenate([np.minimum(k, 4), np.maximum(k - 4, 0)])
    twice = interaction_test(*halves, np.tile(first, 2), np.tile(second, 2), np.tile(np.arange(60), 2))
    apart = interaction_test(*halves, np.tile(first, 2), np.tile(second, 2), np.arange(120))
    assert twice.statistic == pytest.approx(once.statistic, rel=1e-6)
    assert abs(apart.statistic - once.statistic) > 0.1


def test_cells_that_end_alike_and_empty_cells_do_no_harm() -> None:
    n, k, first, second = _trials(0.0)
    k = np.where((first == 1) & (second == 0), 8.0, k)
    kept = ~((first == 0) & (second == 2))
    found = interaction_test(n[kept], k[kept], first[kept], second[kept], np.arange(kept.sum()))
    assert (found.degrees, found.p is None) == (1, False)


def test_what_cannot_be_tested_says_why() -> None:
    n, k, first, second = _trials(0.0)
    trials = np.arange(60)
    assert str(interaction_test(n, n, first, second, trials)) == "not tested: all trainings end alike"
    assert interaction_test(n, k, first, first, trials).note == "the cells with trials do not cross"
    assert interaction_test(n, k, np.arange(60) // 2, second, trials).note.startswith("too few trials, or too many")
    assert interaction_test(n, np.where(first == 0, k, 0), first, second, trials).note == (
        "trainings end in both ways in too few cells"
    )


def test_holms_adjustment() -> None:
    assert adjusted([0.04, None, 0.01, 0.03]) == [pytest.approx(0.06), None, pytest.approx(0.03), pytest.approx(0.06)]
    assert adjusted([0.9, 0.8]) == [1.0, 1.0]
