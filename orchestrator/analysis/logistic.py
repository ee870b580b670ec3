"""Logistic regression on counts by maximum likelihood. Axes: R row, T trial, P term.

The fit is Newton's method, with halved steps where a full step would lower the likelihood; the likelihood has at most
one maximum. `GLM` of statsmodels takes full steps: with most probabilities near 0 or 1 it may diverge, and its robust
covariance was seen to be wrong by a factor of 1,000, or NaN. Elsewhere both give the same numbers.

Trainings of one trial depend on each other, so the covariance of the coefficients is the sandwich, with scores
(derivatives of the log-likelihood) summed by trial. It is corrected in two ways. First, if the ending changes from
never to always within a small part of the range tried, few of the trials decide the fit: each of these pulls the fit
towards itself, so its residual is too small. Therefore each score is divided by 1 - leverage; a leverage over 1/2
counts as 1/2, because a smaller divisor only adds noise. Second, no direction of the coefficients gets less variance
than independent trainings would give it: where the probability is near 0 or 1, no trial disagrees with the fit, which
is no proof that the fit is right there.

Source: McCullagh & Nelder 1989, section 2.5; MacKinnon & White 1985 (HC3); Liang & Zeger 1986 (scores by cluster).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MOST_ITERATIONS = 100
_CONVERGED = 1e-9
_MOST_HALVINGS = 30
_MOST_CONDITION = 1e12
_MOST_LEVERAGE = 0.5
_LARGEST = 700.0
"""Logits are clipped to this: the exponential of a larger logit is infinite."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """The result of a logistic regression: its coefficients and fitted probabilities, and whether the fit converged.

    Attributes:
        coefficients: (P,) the coefficient of each of P terms.
        probability: (R,) the fitted probability of each of R rows.
        information: (P, P) Fisher's information.
        has_converged: Whether the deviance settled, and the rows determine every coefficient.
    """

    coefficients: Floats
    probability: Floats
    information: Floats
    has_converged: bool


def fit_logistic(design: Floats, n: Floats, k: Floats) -> Logistic:
    """Fits a logistic regression: the logit of a probability is a linear function of the terms.

    Args:
        design: (R, P) the values of P terms in R rows.
        n, k: (R,) the number of trainings in each row, more than 0, and the number of these with the ending. They need
            not be whole numbers.
    """
    at = _Place.of(design, n, k, np.zeros(design.shape[1]))
    for _ in range(_MOST_ITERATIONS):
        information = (design.T * (n * at.probability * (1 - at.probability))) @ design
        score = design.T @ (k - n * at.probability)
        step = np.linalg.lstsq(information, score, rcond=None)[0]
        ahead = _Place.of(design, n, k, at.coefficients + step)
        for _ in range(_MOST_HALVINGS):
            if ahead.deviance <= at.deviance:
                break
            step = step / 2
            ahead = _Place.of(design, n, k, at.coefficients + step)
        gained, at = at.deviance - ahead.deviance, ahead
        if gained < _CONVERGED:
            is_known = bool(np.linalg.cond(information) < _MOST_CONDITION)
            return Logistic(at.coefficients, at.probability, information, is_known)
    return Logistic(at.coefficients, at.probability, information, has_converged=False)


@dataclass(frozen=True, slots=True)
class _Place:
    """The coefficients at one step of Newton's method, with the probabilities and the deviance that they give."""

    coefficients: Floats
    probability: Floats
    deviance: float

    @classmethod
    def of(cls, design: Floats, n: Floats, k: Floats, coefficients: Floats) -> "_Place":
        logit = design @ coefficients
        # The logarithms of p and 1 - p are computed from the logit, because p itself may round to 0 or 1.
        deviance = 2 * float(n @ np.logaddexp(0, logit) - k @ logit)
        return cls(coefficients, 1 / (1 + np.exp(-np.clip(logit, -_LARGEST, _LARGEST))), deviance)


def clustered_covariance(fitted: Logistic, design: Floats, n: Floats, k: Floats) -> Floats:
    """Returns the covariance of the coefficients of a converged logistic regression. It allows for dependence between
    the trainings of a trial.

    For P terms its shape is (P, P). Intervals with it take Student's t with T - P degrees of freedom, for T trials.

    Args:
        design: (T, P) the terms, one row for each trial.
        n, k: (T,) the counts that were fitted.
    """
    root = np.linalg.cholesky(fitted.information)
    expected = n * fitted.probability
    terms_PT = np.linalg.solve(root, design.T)
    leverage = expected * (1 - fitted.probability) * np.square(terms_PT).sum(axis=0)
    score_PT = terms_PT * ((k - expected) / (1 - np.minimum(leverage, _MOST_LEVERAGE)))
    # `terms_PT` are coordinates in which the score (gradient of the log likelihood) of independent trainings has
    # variance 1 in every direction. The result must not be below the covariance of independent trainings, so estimated
    # variances below 1 are raised to 1.
    variances, directions = np.linalg.eigh(score_PT @ score_PT.T)
    spread = np.linalg.solve(root.T, directions) * np.sqrt(np.maximum(variances, 1.0))
    return np.asarray(spread @ spread.T)
