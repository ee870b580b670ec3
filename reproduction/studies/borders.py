"""Estimates borders: values of a parameter where a falling rate of trainings with some outcome crosses one half; and
how other parameters move a border.

A border in `init_sigma` is fitted by a logistic regression of the share on the logarithm of `init_sigma` and on other
parameters.

Where the logit of a share is a + b log(sigma) + sum_j c_j x_j, half of the trainings are beyond log(sigma) = -(a +
sum_j c_j x_j) / b, so that x_j multiplies the border by exp(-c_j / b) per unit. Intervals are those of the delta method
with Student's t and the covariance of `clustered_covariance`. In simulation (256 trials x 4, intra-trial correlation 0
to 0.4, four to seven terms, 6 to 18 logits a decade) they cover the truth in 93 to 98% of cases, and tests reject a
true hypothesis in 1 to 5%; tests/reproduction/test_borders.py repeats a part of it.

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
"""A slope counts as known if it is at least this number of standard errors away from 0."""


@dataclass(frozen=True, slots=True)
class BorderModel:
    """A logistic model of how the border in init_sigma (the value at which half of the trainings get stuck) depends on
    other parameters.

    Attributes:
        coefficients: The constant, the coefficient of log sigma, and those of the terms, (n_terms,).
        covariance: The covariance of the coefficients, (n_terms, n_terms).
        n_trials: The number of trials T.
    """

    coefficients: Floats
    covariance: Floats
    n_trials: int

    def border(self, at: Floats) -> tuple[float, float, float]:
        """Returns the init_sigma at which, by the logistic model, half of the trainings get stuck, with its 95%
        interval. `at` has the values of the model's terms for the other parameters."""
        return self._exponential(np.array([1.0, 0.0, *at]))

    def factor(self, term: int, units: float = 1.0) -> tuple[float, float, float]:
        """Returns by which factor, with its 95% interval, the border in init_sigma (where half of the trainings get
        stuck) is multiplied if term number `term` of the regression, a function of other parameters, rises by `units`.
        """
        direction = np.zeros_like(self.coefficients)
        direction[2 + term] = units
        return self._exponential(direction)

    def p_value(self, terms: Sequence[int]) -> float:
        """Returns the p-value of the hypothesis that the given terms of the regression do not move the border in
        init_sigma (where half of the trainings get stuck).

        Wald's test with the F distribution.
        """
        from scipy import special

        indices = np.array(terms) + 2
        chosen = self.coefficients[indices]
        statistic = float(chosen @ np.linalg.solve(self.covariance[np.ix_(indices, indices)], chosen)) / len(indices)
        return float(special.fdtrc(len(indices), self._freedom, statistic))

    @property
    def _freedom(self) -> int:
        return self.n_trials - len(self.coefficients)

    def _exponential(self, direction: Floats) -> tuple[float, float, float]:
        """Returns a border in init_sigma (the value at which half of the trainings get stuck), or the factor by which a
        term of the regression multiplies this border, with its 95% interval. Which of the two depends on `direction`.

        It is exp(-(direction . coefficients) / slope), where the slope is the coefficient of log init_sigma. `border`
        and `factor` pass the direction for each of the two.
        """
        from scipy import special

        slope = self.coefficients[1]
        shift = -float(direction @ self.coefficients) / slope
        gradient = -direction / slope
        gradient[1] -= shift / slope
        half = float(special.stdtrit(self._freedom, 0.975)) * math.sqrt(float(gradient @ self.covariance @ gradient))
        return math.exp(shift), math.exp(shift - half), math.exp(shift + half)


def fit_border(sigma: Floats, terms: Floats, n: Floats, k: Floats) -> BorderModel:
    """Fits the border in init_sigma, the standard deviation of the initial weights: the value at which half of the
    trainings have a given ending, such as stuck.

    The fit is a logistic regression of the rates of trials on log init_sigma and the other terms.

    Args:
        sigma: The init_sigma of each trial, (n_trials,).
        terms: The other terms, (n_trials, n_terms - 2).
        n, k: The number of trainings of each trial, and how many of them have the ending, (n_trials,).

    Raises:
        ValueError: If the slope in log sigma is not known: one value of sigma separates all trials perfectly, or sigma
            does not matter.
    """
    design = np.column_stack([np.ones_like(sigma), np.log(sigma), terms])
    fitted = fit_logistic(design, n, k)
    covariance = clustered_covariance(fitted, design, n, k) if fitted.has_converged else None
    if covariance is None or abs(fitted.coefficients[1]) < _KNOWN_SLOPE * math.sqrt(covariance[1, 1]):
        raise ValueError(
            "the effect of sigma cannot be estimated: one value of sigma separates the endings perfectly, or sigma has"
            " no measurable effect"
        )
    return BorderModel(fitted.coefficients, covariance, len(sigma))


def pair_table(pairs: Sequence[tuple[str, str]], p_values: Sequence[float | None]) -> list[list[str]]:
    """Returns a table of tests whether the effect of one parameter depends on another one. For each pair of parameters
    it has the p-value, and the p-value adjusted for the number of tests.
    """
    cells = zip(pairs, p_values, adjusted(p_values), strict=True)
    lines = [[" x ".join(pair), *("-" if p is None else f"{p:.2g}" for p in both)] for pair, *both in cells]
    return [["pair", "p", "adjusted (Holm)"], *lines]


def products(parts: Mapping[str, Floats], pair: tuple[str, str]) -> Floats:
    """Returns products of two parameters, which model their interaction in a regression, (n_trials, n_products): each
    column that encodes the first parameter times each column that encodes the second."""
    left, right = (parts[name] for name in pair)
    return np.column_stack([first * second for first in left.T for second in right.T])


_CURVE, _STEPS = 3.84, 2.27
"""The 95% quantiles of two likelihood ratios: chi squared for fitted curves, Banerjee & Wellner's for rates that may
fall in any shape."""
_LEAST_FREEDOM = 2.0
"""The least degrees of freedom of Student's t, used if hardly any trial is near the border. With 1, intervals would
span all trials."""
_PARTS, _BEYOND = 200, 20
"""The number of parts into which the range of values is divided, and the number of candidates for the border that are
tried beyond each end."""


def half_point(x: Floats, holds: Floats, *, of_trials: bool = False) -> tuple[float, float, float]:
    """Returns the border of a falling rate, with its 95% interval: the x at which the rate crosses one half. The data
    are the x of each training, and whether it counts towards the rate.

    The curve may be logistic, or fall faster on either side: a sampler that looks for a border may leave a gap around
    it, and the curve within the gap decides. The border is the logistic curve's. The interval is the union of the three
    profile likelihoods' intervals, and wider if the shares at the values of x scatter by more than chance
    (quasi-likelihood, McCullagh & Nelder 1989, section 4.5). The likelihoods are computed on a grid: borders are sharp,
    so that the maximum may lie at infinite steepness.

    The border may lie beyond the values of x, by at most their range. If the values do not bound it on a side, that end
    of the interval is infinite. The border itself is infinite if the share does not cross one half, as when all
    trainings have the property (inf) or none (-inf).

    If groups with different borders are pooled, another curve may fit so much better that the interval excludes the
    logistic border. Then none of the three curves can be trusted. Border and interval then assume only that the share
    falls, by the likelihood ratio of Banerjee & Wellner 2001: an interval two to four times as wide.

    With `of_trials` each value of x is a trial whose trainings may end alike, because something else differs between
    trials too. The likelihood ratio is then divided by the ratio of the border's variance to that of independent
    trainings (Chandler & Bate 2007), by `clustered_covariance`, and compared with the square of Student's t at the
    number of trials that decide the border. If trials are separated, they count as one training each.
    """
    values, place = np.unique(x, return_inverse=True)
    n = np.bincount(place).astype(np.float64)
    k = np.bincount(place, weights=holds).astype(np.float64)
    least = _widening(values, n, k) if of_trials else 1.0
    coarse = _coarse(values)
    borders = _around(coarse, _inside(coarse, _profiles(coarse, values, n, k), n, k, least))
    profiles = _profiles(borders, values, n, k)
    inside = _inside(borders, profiles, n, k, least)
    best = borders[profiles[0].argmin()]
    if not inside[0] <= best <= inside[-1]:
        return _border_of_any_share(values, n, k, least)
    border, low, high = (_unbounded(float(end), coarse) for end in (best, inside[0], inside[-1]))
    return border, low, high


def _coarse(values: Floats) -> Floats:
    """Returns candidates for the border (the x at which a rate crosses one half): evenly spaced within the range of the
    data, and ever farther apart beyond it.
    """
    span = float(np.ptp(values)) or 1.0
    beyond = span * np.geomspace(1 / _PARTS, 1, _BEYOND)
    within = np.linspace(values[0], values[-1], _PARTS + 1)
    return np.concatenate([values[0] - beyond[::-1], within, values[-1] + beyond])


def _around(coarse: Floats, inside: Floats) -> Floats:
    """Returns a fine grid of candidates for the border (the x at which a rate crosses one half), over a range a little
    wider than the given interval.
    """
    first, last = np.searchsorted(coarse, inside[0]) - 1, np.searchsorted(coarse, inside[-1]) + 1
    return np.linspace(coarse[max(first, 0)], coarse[min(last, len(coarse) - 1)], _PARTS + 1)


def _inside(borders: Floats, profiles: list[Floats], n: Floats, k: Floats, least: float) -> Floats:
    """Returns the candidates for the border, the x at which a falling rate crosses one half, that the data do not
    exclude.

    A candidate stays if it fits the data well enough with at least one of the three shapes of the rate's curve that
    `_curves` yields.
    """
    profile: Floats = np.min(profiles, axis=0)
    inside: Floats = borders[profile <= profile.min() + _CURVE * _dispersion(float(profile.min()), n, k, 2, least)]
    return inside


def _unbounded(border: float, grid: Floats) -> float:
    """Returns the estimated value at which a rate crosses one half (the border); but plus or minus infinity if it is at
    an end of the grid of tried values, because the data set no limit there.
    """
    return -math.inf if border <= grid[0] else math.inf if border >= grid[-1] else border


def _widening(values: Floats, n: Floats, k: Floats) -> float:
    """Returns a factor, at least 1, that widens a border's interval, because trainings of one trial end alike more
    often than independent ones.

    The interval holds the borders whose log likelihood is at most some amount below the largest one; the factor
    multiplies this amount.
    """
    design = np.column_stack([np.ones_like(values), values])
    fitted = fit_logistic(design, n, k)
    is_separated = values[k > 0].max(initial=-np.inf) <= values[k < n].min(initial=np.inf)
    if is_separated or not fitted.has_converged:
        return float(n.mean())
    # The border, where half of the trainings are stuck, is -intercept / slope. `border` holds its derivatives with
    # respect to intercept and slope, up to a common factor that cancels in the returned ratio.
    border = np.array([1.0, -fitted.coefficients[0] / fitted.coefficients[1]])
    spread = border @ clustered_covariance(fitted, design, n, k) @ border
    weight = n * fitted.probability * (1 - fitted.probability)
    n_deciding = weight.sum() ** 2 / np.square(weight).sum()
    quantile = special.stdtrit(max(n_deciding - 1, _LEAST_FREEDOM), 0.975) ** 2
    return float(spread / (border @ np.linalg.solve(fitted.information, border)) * quantile / _CURVE)


def _profiles(borders_B: Floats, values: Floats, n: Floats, k: Floats) -> list[Floats]:
    """Returns how well each candidate for the border, the x at which a falling rate crosses one half, fits the data
    (minus twice the log likelihood).

    Returns one array (n_borders,) for each of the three shapes of the rate's curve that `_curves` yields. Each border
    is judged with the steepness that fits best.
    """
    steepness = np.geomspace(0.3, 100, 25)
    predictor = steepness[:, np.newaxis] * (values - borders_B[:, np.newaxis, np.newaxis])
    return [_deviance(log_shares, n, k).min(1) for log_shares in _curves(predictor)]


def _border_of_any_share(values: Floats, n: Floats, k: Floats, least: float) -> tuple[float, float, float]:
    """Returns the border, which is the parameter's value at which a rate crosses one half, and its interval. Of the
    rate it is only assumed that it falls as the parameter grows.
    """
    share = _falling(k, n)
    dispersion = _dispersion(float(_deviance(_logarithms(share), n, k)), n, k, len(np.unique(share)), least)
    shares = (_share_with_border(place, n, k) for place in range(len(values) + 1))
    profile = np.array([_deviance(_logarithms(border_share), n, k) for border_share in shares])
    inside = np.flatnonzero(profile <= profile.min() + _STEPS * dispersion)
    best = np.flatnonzero(profile <= profile.min() + 1e-9)
    ends = np.array([-np.inf, *values, np.inf])
    return float((ends[best[0]] + ends[best[-1] + 1]) / 2), float(ends[inside[0]]), float(ends[inside[-1] + 1])


def _share_with_border(place: int, n: Floats, k: Floats) -> Floats:
    """Fits a rate that never rises from one value to the next, and that crosses 1/2 at a given place, by maximum
    likelihood. Returns the rate at each value, (n_values,): at least 1/2 before index `place`, and at most 1/2 from
    there on."""
    before, after = _falling(k[:place], n[:place]), _falling(k[place:], n[place:])
    return np.concatenate([np.maximum(before, 0.5), np.minimum(after, 0.5)])


def _falling(k: Floats, n: Floats) -> Floats:
    """Estimates a rate by maximum likelihood at each of several ascending values, (n_values,), if it is known that the
    rate never rises (isotonic regression).
    """
    if not len(n):
        return n
    share = optimize.isotonic_regression(k / n, weights=n, increasing=False).x
    return np.clip(share, 0.0, 1.0)


def _dispersion(deviance: float, n: Floats, k: Floats, n_parameters: int, least: float) -> float:
    """Returns the scatter of rates around a fitted curve, divided by the scatter that chance alone would give; at least
    `least`.
    """
    saturated = float(_deviance(_logarithms(k / n), n, k))
    return max(least, (deviance - saturated) / max(len(n) - n_parameters, 1))


def _logarithms(share: Floats) -> tuple[Floats, Floats]:
    """Returns the logarithms of a rate p and of 1 - p. The logarithm of 0 is replaced by a very negative finite
    number.
    """
    return np.log(np.maximum(share, 1e-300)), np.log(np.maximum(1 - share, 1e-300))


def _curves(predictor: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Yields three curves, as models of a rate that falls from 1 to 0 as a linear predictor grows. Each is 1/2 where
    the predictor is 0.

    Each shape is a pair: the logarithms of the rate and of 1 minus the rate.
    """
    yield special.log_expit(-predictor), special.log_expit(predictor)
    for sign in (1, -1):
        falling = -math.log(2) * np.exp(np.clip(sign * predictor, -700, 700))
        rising = np.maximum(np.log(-np.expm1(falling)), -1e9)
        yield (falling, rising) if sign == 1 else (rising, falling)


def _deviance(log_shares: tuple[Floats, Floats], n: Floats, k: Floats) -> Floats:
    """Returns -2 times the log likelihood of k successes in n trials with the given rates, summed over the last
    axis.
    """
    return np.asarray(-2 * (k * log_shares[0] + (n - k) * log_shares[1]).sum(-1))
