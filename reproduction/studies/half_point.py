"""Where a falling share crosses one half, with its interval. Axes: X value, B border."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from attnsweep.orchestrator.analysis.logistic import clustered_covariance, fit_logistic

Floats = NDArray[np.float64]

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
