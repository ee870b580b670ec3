"""The covariance of a regression on trials: the formula, and the least that it gives."""

import numpy as np
import pytest
import statsmodels.api as sm

from attnsweep.orchestrator.analysis.logistic import Floats, clustered_covariance, fit_logistic

N = np.full(60, 8.0)


def _trials(is_alike: bool) -> tuple[Floats, Floats]:
    """A design and counts: the trainings of a trial end alike, or agree with their expectation more than by chance."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 60)
    share = 1 / (1 + np.exp(-2 * x))
    k = 8 * (rng.random(60) < share) if is_alike else np.round(8 * share)
    return np.column_stack([np.ones(60), x]), k.astype(float)


def test_scores_of_trials_are_divided_by_one_minus_their_leverage() -> None:
    design, k = _trials(is_alike=True)
    design[0], k[0] = (1.0, 6.0), 0.0
    reference = sm.GLM(k / N, design, family=sm.families.Binomial(), freq_weights=N).fit()
    leverage = N * reference.fittedvalues * (1 - reference.fittedvalues)
    leverage *= np.einsum("tp,pq,tq->t", design, reference.normalized_cov_params, design)
    assert leverage.max() > 0.5
    score = ((k - N * reference.fittedvalues) / (1 - np.minimum(leverage, 0.5)))[:, None] * design
    bread = reference.normalized_cov_params
    expected = bread @ (score.T @ score) @ bread
    found = clustered_covariance(fit_logistic(design, N, k), design, N, k)
    assert found == pytest.approx(expected, rel=1e-6)


def test_no_direction_has_less_variance_than_independent_trainings_give_it() -> None:
    design, k = _trials(is_alike=False)
    fitted = fit_logistic(design, N, k)
    found = clustered_covariance(fitted, design, N, k)
    assert found == pytest.approx(np.linalg.inv(fitted.information), rel=1e-9)


def test_it_does_not_depend_on_the_units_of_the_terms() -> None:
    design, k = _trials(is_alike=True)
    other = design @ np.array([[1.0, 40.0], [0.0, 0.01]])
    found, rescaled = (clustered_covariance(fit_logistic(each, N, k), each, N, k) for each in (design, other))
    of_predictor = [np.diag(each @ of @ each.T) for each, of in ((design, found), (other, rescaled))]
    assert of_predictor[0] == pytest.approx(of_predictor[1], rel=1e-4)


def test_coefficients_that_cannot_be_told_apart_are_not_converged() -> None:
    design, k = _trials(is_alike=True)
    assert fit_logistic(design, N, k).has_converged
    nearly_same = np.column_stack([design, design[:, 1] * (1 + 1e-8 * np.arange(60))])
    assert not fit_logistic(nearly_same, N, k).has_converged
