"""What moves a border in `init_sigma`: a logistic regression on its logarithm and on other parameters. Axes: T trial, P
term.

Where the logit of a share is a + b log(sigma) + sum_j c_j x_j, half of the trainings are beyond log(sigma) = -(a +
sum_j c_j x_j) / b, so that x_j multiplies the border by exp(-c_j / b) per unit. Intervals are those of the delta method
with Student's t and the covariance of `clustered_covariance`. In simulation (256 trials x 4, intra-trial correlation 0
to 0.4, four to seven terms, 6 to 18 logits a decade) they cover the truth in 93 to 98% of cases, and tests reject a
true hypothesis in 1 to 5%; tests/reproduction/test_mission.py repeats a part of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.logistic import clustered_covariance, fit_logistic

Floats = NDArray[np.float64]

_KNOWN_SLOPE = 2.0
"""Standard errors that the slope must be away from 0."""


@dataclass(frozen=True, slots=True)
class BorderModel:
    """A fitted border.

    Attributes:
        coefficients: (P,) the constant, that of log sigma, and those of the terms.
        covariance: (P, P)
        n_trials: T.
    """

    coefficients: Floats
    covariance: Floats
    n_trials: int

    def border(self, at: Floats) -> tuple[float, float, float]:
        """The sigma at which half of the trainings are beyond, with its 95% interval; `at` (P - 2,) are the terms."""
        return self._exponential(np.array([1.0, 0.0, *at]))

    def factor(self, term: int, units: float = 1.0) -> tuple[float, float, float]:
        """By what a term multiplies the border per so many units, with its 95% interval."""
        direction = np.zeros_like(self.coefficients)
        direction[2 + term] = units
        return self._exponential(direction)

    def p_value(self, terms: Sequence[int]) -> float:
        """Of the hypothesis that these terms do not move the border (Wald's test with the F distribution)."""
        from scipy import special

        at = np.array(terms) + 2
        chosen = self.coefficients[at]
        statistic = float(chosen @ np.linalg.solve(self.covariance[np.ix_(at, at)], chosen)) / len(at)
        return float(special.fdtrc(len(at), self._freedom, statistic))

    @property
    def _freedom(self) -> int:
        return self.n_trials - len(self.coefficients)

    def _exponential(self, direction: Floats) -> tuple[float, float, float]:
        """exp(-(direction . coefficients) / slope)."""
        from scipy import special

        slope = self.coefficients[1]
        shift = -float(direction @ self.coefficients) / slope
        gradient = -direction / slope
        gradient[1] -= shift / slope
        half = float(special.stdtrit(self._freedom, 0.975)) * math.sqrt(float(gradient @ self.covariance @ gradient))
        return math.exp(shift), math.exp(shift - half), math.exp(shift + half)


def fit_border(sigma: Floats, terms: Floats, n: Floats, k: Floats) -> BorderModel:
    """Fits a border.

    Args:
        sigma: (T,)
        terms: (T, P - 2)
        n, k: (T,) trainings of each trial, and those that have the ending.

    Raises:
        ValueError: If the slope in log sigma is not known: the trials are separated, or sigma does not matter.
    """
    design = np.column_stack([np.ones_like(sigma), np.log(sigma), terms])
    fitted = fit_logistic(design, n, k)
    covariance = clustered_covariance(fitted, design, n, k) if fitted.has_converged else None
    if covariance is None or abs(fitted.coefficients[1]) < _KNOWN_SLOPE * math.sqrt(covariance[1, 1]):
        raise ValueError("the slope is not known: the trials are separated, or sigma does not matter")
    return BorderModel(fitted.coefficients, covariance, len(sigma))


def products(parts: Mapping[str, Floats], pair: tuple[str, str]) -> Floats:
    """(T, R) the products of each column of one part with each of another: their interaction."""
    one, other = (parts[name] for name in pair)
    return np.column_stack([first * second for first in one.T for second in other.T])
