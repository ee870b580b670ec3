"""Borders: where a falling share crosses one half, and what moves it.

**What moves a border in `init_sigma`**: a logistic regression on its logarithm and on other parameters.

Where the logit of a share is a + b log(sigma) + sum_j c_j x_j, half of the trainings are beyond log(sigma) = -(a +
sum_j c_j x_j) / b, so that x_j multiplies the border by exp(-c_j / b) per unit. Intervals are those of the delta method
with Student's t and the covariance of `clustered_covariance`. In simulation (256 trials x 4, intra-trial correlation 0
to 0.4, four to seven terms, 6 to 18 logits a decade) they cover the truth in 93 to 98% of cases, and tests reject a
true hypothesis in 1 to 5%; tests/reproduction/test_mission.py repeats a part of it.

Axes: T trial, P term, X value, B border.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from attnsweep.orchestrator.analysis.logistic import clustered_covariance, fit_logistic
from attnsweep.orchestrator.analysis.rates.interaction import adjusted

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


def pair_table(pairs: Sequence[tuple[str, str]], p_values: Sequence[float | None]) -> list[list[str]]:
    """Whether two parameters act together otherwise than each alone: a table of p-values, as they are and adjusted."""
    cells = zip(pairs, p_values, adjusted(p_values), strict=True)
    lines = [
        [" x ".join(pair), *("-" if each is None else f"{each:.2g}" for each in of_pair)] for pair, *of_pair in cells
    ]
    return [["pair", "p", "adjusted (Holm)"], *lines]


def products(parts: Mapping[str, Floats], pair: tuple[str, str]) -> Floats:
    """(T, R) the products of each column of one part with each of another: their interaction."""
    one, other = (parts[name] for name in pair)
    return np.column_stack([first * second for first in one.T for second in other.T])


_CURVE, _STEPS = 3.84, 2.27
"""The 95% quantiles of the likelihood ratio: chi squared, and that of Banerjee & Wellner."""
_LEAST_FREEDOM = 2.0
"""Degrees of freedom of Student's t where hardly any trial is near the border. With 1, intervals span all trials."""
_PARTS, _BEYOND = 200, 20
"""Into how many parts the values' range is divided, and how many borders are tried on either side of it."""


def half_point(x: Floats, holds: Floats, *, of_trials: bool = False) -> tuple[float, float, float]:
    """Where a falling curve through (x, holds), (R,) each, crosses one half, with its 95% interval.

    The curve may be logistic, or fall faster on either side: a sampler that looks for a border may leave a gap about
    it, and what crosses the gap decides. The border is the logistic one's. The interval is the union of the three
    profile likelihoods', and wider where the shares at the values of x scatter by more than chance (quasi-likelihood,
    McCullagh & Nelder 1989, section 4.5). The likelihoods are computed on a grid: borders are sharp, so that the
    maximum may lie at infinite steepness.

    The border may lie beyond the values, by at most their range. Where they do not bound it on a side, that end of the
    interval is infinite. So is the border if the share does not cross one half, as where all trainings have the
    property (inf) or none (-inf).

    If groups with different borders are pooled, another curve may fit so much better that the interval leaves the
    logistic border out. No such curve is to be trusted then, and border and interval are those of any share that falls,
    by the likelihood ratio of Banerjee & Wellner 2001: an interval two to four times as wide.

    With `of_trials` each value of x is a trial whose trainings may end alike, because something else differs between
    trials too. The likelihood ratio is then divided by how much larger the border's variance is than that of
    independent trainings (Chandler & Bate 2007), by `clustered_covariance`, and compared with the square of Student's t
    at the number of trials that decide the border. Where trials are separated, they count as one training each.
    """
    values, place = np.unique(x, return_inverse=True)
    n = np.bincount(place).astype(np.float64)
    k = np.bincount(place, weights=holds).astype(np.float64)
    least = _widening(values, n, k) if of_trials else 1.0
    coarse = _coarse(values)
    borders = _around(coarse, _inside(coarse, _profiles(coarse, values, n, k), n, k, least))
    profiles = _profiles(borders, values, n, k)
    inside = _inside(borders, profiles, n, k, least)
    found = borders[profiles[0].argmin()], inside[0], inside[-1]
    if not inside[0] <= found[0] <= inside[-1]:
        return _of_any_share(values, n, k, least)
    border, low, high = (_unbounded(float(each), coarse) for each in found)
    return border, low, high


def _coarse(values: Floats) -> Floats:
    """Borders within the values, and ever farther beyond them."""
    span = float(np.ptp(values)) or 1.0
    beyond = span * np.geomspace(1 / _PARTS, 1, _BEYOND)
    within = np.linspace(values[0], values[-1], _PARTS + 1)
    return np.concatenate([values[0] - beyond[::-1], within, values[-1] + beyond])


def _around(coarse: Floats, inside: Floats) -> Floats:
    """Borders close together, from the last one below an interval on a coarse grid to the first one above."""
    first, last = np.searchsorted(coarse, inside[0]) - 1, np.searchsorted(coarse, inside[-1]) + 1
    return np.linspace(coarse[max(first, 0)], coarse[min(last, len(coarse) - 1)], _PARTS + 1)


def _inside(borders: Floats, profiles: list[Floats], n: Floats, k: Floats, least: float) -> Floats:
    """Those of the borders that one of the curves does not exclude."""
    profile: Floats = np.min(profiles, axis=0)
    found: Floats = borders[profile <= profile.min() + _CURVE * _dispersion(float(profile.min()), n, k, 2, least)]
    return found


def _unbounded(border: float, grid: Floats) -> float:
    """A border, or an infinite one at the grid's ends."""
    return -math.inf if border <= grid[0] else math.inf if border >= grid[-1] else border


def _widening(values: Floats, n: Floats, k: Floats) -> float:
    """By how much trials widen the threshold of the likelihood ratio; at least 1."""
    design = np.column_stack([np.ones_like(values), values])
    fitted = fit_logistic(design, n, k)
    is_separated = values[k > 0].max(initial=-np.inf) <= values[k < n].min(initial=np.inf)
    if is_separated or not fitted.has_converged:
        return float(n.mean())
    # The direction in which the border moves, but for its length.
    border = np.array([1.0, -fitted.coefficients[0] / fitted.coefficients[1]])
    spread = border @ clustered_covariance(fitted, design, n, k) @ border
    weight = n * fitted.probability * (1 - fitted.probability)
    n_deciding = weight.sum() ** 2 / np.square(weight).sum()
    quantile = special.stdtrit(max(n_deciding - 1, _LEAST_FREEDOM), 0.975) ** 2
    return float(spread / (border @ np.linalg.solve(fitted.information, border)) * quantile / _CURVE)


def _profiles(borders_B: Floats, values: Floats, n: Floats, k: Floats) -> list[Floats]:
    """(B,) for each of three curves -2 log likelihood at the best steepness."""
    steepness = np.geomspace(0.3, 100, 25)
    predictor = steepness[:, np.newaxis] * (values - borders_B[:, np.newaxis, np.newaxis])
    return [_deviance(log_shares, n, k).min(1) for log_shares in _curves(predictor)]


def _of_any_share(values: Floats, n: Floats, k: Floats, least: float) -> tuple[float, float, float]:
    """The border between two of the values or beyond them, and its interval."""
    share = _falling(k, n)
    dispersion = _dispersion(float(_deviance(_logarithms(share), n, k)), n, k, len(np.unique(share)), least)
    profile = np.array([_deviance(_logarithms(_share_with_border(at, n, k)), n, k) for at in range(len(values) + 1)])
    inside = np.flatnonzero(profile <= profile.min() + _STEPS * dispersion)
    best = np.flatnonzero(profile <= profile.min() + 1e-9)
    ends = np.array([-np.inf, *values, np.inf])
    return float((ends[best[0]] + ends[best[-1] + 1]) / 2), float(ends[inside[0]]), float(ends[inside[-1] + 1])


def _share_with_border(at: int, n: Floats, k: Floats) -> Floats:
    """(X,) the likeliest falling share that is at least one half before a place, and at most one half from there on."""
    before, after = _falling(k[:at], n[:at]), _falling(k[at:], n[at:])
    return np.concatenate([np.maximum(before, 0.5), np.minimum(after, 0.5)])


def _falling(k: Floats, n: Floats) -> Floats:
    """(X,) the likeliest falling share."""
    if not len(n):
        return n
    found = optimize.isotonic_regression(k / n, weights=n, increasing=False).x
    return np.clip(found, 0.0, 1.0)


def _dispersion(deviance: float, n: Floats, k: Floats, n_parameters: int, least: float) -> float:
    """By how much shares scatter about a fit more than chance, at least so much."""
    saturated = float(_deviance(_logarithms(k / n), n, k))
    return max(least, (deviance - saturated) / max(len(n) - n_parameters, 1))


def _logarithms(share: Floats) -> tuple[Floats, Floats]:
    """Of a share and its complement; large and finite for 0."""
    return np.log(np.maximum(share, 1e-300)), np.log(np.maximum(1 - share, 1e-300))


def _curves(predictor: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Three curves that fall with a predictor and are one half where it is 0: logarithms of share and complement."""
    yield special.log_expit(-predictor), special.log_expit(predictor)
    for sign in (1, -1):
        falling = -math.log(2) * np.exp(np.clip(sign * predictor, -700, 700))
        rising = np.maximum(np.log(-np.expm1(falling)), -1e9)
        yield (falling, rising) if sign == 1 else (rising, falling)


def _deviance(log_shares: tuple[Floats, Floats], n: Floats, k: Floats) -> Floats:
    """-2 log likelihood of k of n, over the last axis."""
    return np.asarray(-2 * (k * log_shares[0] + (n - k) * log_shares[1]).sum(-1))
