"""The covariance of a logistic regression's coefficients where the trainings of a trial depend on each other.

Axes: T trial, P term.

It is the sandwich with scores summed by trial, corrected in two ways. If the ending changes from never to always within
a small part of the range tried, few of the trials decide the fit: each pulls it towards itself, and its residual is too
small. So each score is divided by 1 - leverage; a leverage over 1/2 counts as 1/2, because a larger divisor only adds
noise. And no direction of the coefficients gets less variance than independent trainings would give it: far from the
border no trial disagrees with the fit, which is no proof that it is right there.

Source: MacKinnon & White 1985 (HC3); Liang & Zeger 1986 (scores by cluster).
"""

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.logistic import Logistic

Floats = NDArray[np.float64]

_MOST_LEVERAGE = 0.5


def clustered_covariance(fitted: Logistic, design: Floats, n: Floats, k: Floats) -> Floats:
    """(P, P) the covariance of the coefficients; use it with Student's t and T - P degrees of freedom.

    Args:
        fitted: The regression of k of n on the design; it must have converged.
        design: (T, P) the terms, one row for each trial.
        n, k: (T,) as they were fitted.
    """
    root = np.linalg.cholesky(fitted.information)
    expected = n * fitted.probability
    terms_PT = np.linalg.solve(root, design.T)
    leverage = expected * (1 - fitted.probability) * np.square(terms_PT).sum(axis=0)
    score_PT = terms_PT * ((k - expected) / (1 - np.minimum(leverage, _MOST_LEVERAGE)))
    # In these coordinates independent trainings give every direction the variance 1.
    variances, directions = np.linalg.eigh(score_PT @ score_PT.T)
    spread = np.linalg.solve(root.T, directions) * np.sqrt(np.maximum(variances, 1.0))
    return np.asarray(spread @ spread.T)
