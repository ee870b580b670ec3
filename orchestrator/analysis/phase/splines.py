"""A smooth surface of logits over two parameters, each scaled to -1..1. Cross-validation chooses how flexible it is.

The logit is a sum of products of cubic B-splines of the two axes, on equally spaced knots; the number of splines grows
with that of trials, up to 32 x 32. The fit maximizes the log-likelihood minus a penalty and minus a weak ridge. The
penalty is half of `smoothing`, times the mean weight of a trial, times the integral of the squared second derivatives,
so a plane has no penalty. The ridge is a normal prior of standard deviation 10 for the logit, so that there is a
maximum also where all trials end alike. Of nine values of `smoothing` the one is taken that predicts best: each place
is held out once, and its trials are predicted from all other places. The fit is not repeated for each place, but
approximated by one step of Newton's method from the fit to all places (Rad & Maleki 2020). Trials within 1/96 of the
range are one place, so the time hardly grows beyond 10,000 trials.

The intervals take as given where the trials are, how many trainings they have, and the chosen smoothing. They take as
random how trainings end; the trainings of one trial may depend on each other. The covariance of the coefficients is
that of a posterior (Wahba 1983), whose intervals have the right coverage on average over the surface although a
penalized fit is biased. In place of Fisher's information it has the scores summed by trial (Liang & Zeger 1986), each
divided by 1 - leverage (MacKinnon & White 1985; a leverage over 1/2 counts as 1/2). A trial's squared score counts at
least as much as independent trainings would give: trials that agree with the fit by chance are no proof of the fit.

Axes: T trial, P place, B product of two B-splines, A the 16 such products that are not 0 at a place.
Source: Eilers & Marx 2003, Chemometrics 66 (penalized products of B-splines); Wood 2017, Generalized Additive Models.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# scipy is imported inside functions, because its import takes half a second.

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

_FEWEST_SPLINES, _MOST_SPLINES = 6, 32
_N_PLACES = 96
"""Trials in one cell of a grid with this many cells along each axis are merged into one place."""
_PRIOR = 10.0
"""The standard deviation of the normal prior of the logit."""
_SMOOTHINGS = 10.0 ** np.arange(2, -7, -1)
_PATIENCE = 3
"""The search ends after this many values of the smoothing in succession that predict worse than the best one."""
_CONVERGED = 1e-5
_MOST_STEPS = 100
_MOST_HALVINGS = 30
_MOST_LEVERAGE = 0.5
_EDGE = 1e-9


@dataclass(frozen=True, slots=True)
class Splines:
    """All products of one B-spline of the first axis and one of the second, `n` on each."""

    n: int

    @classmethod
    def for_trials(cls, n_trials: int) -> "Splines":
        """The more trials, the more splines, within limits."""
        return cls(int(np.clip(round(2.5 * n_trials**0.25) + 3, _FEWEST_SPLINES, _MOST_SPLINES)))

    @property
    def spacing(self) -> float:
        """Between neighbouring knots."""
        return 2 / (self.n - 3)

    def at(self, x: Floats, y: Floats) -> tuple[Ints, Floats]:
        """At each point the 16 products that are not 0 there."""
        (x_at, x_value), (y_at, y_value) = self._along(x), self._along(y)
        number = y_at[..., :, None] * self.n + x_at[..., None, :]
        value = y_value[..., :, None] * x_value[..., None, :]
        return number.reshape(*x.shape, 16), value.reshape(*x.shape, 16)

    def _along(self, places: Floats) -> tuple[Ints, Floats]:
        """The 4 splines of one axis that are not 0 at each point."""
        along = (places + 1) / self.spacing
        first = np.clip(along.astype(np.int64), 0, self.n - 4)
        t = along - first
        value = [(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, 3 * (1 - t) ** 3 - 6 * (1 - t) ** 2 + 4, t**3]
        return first[..., None] + np.arange(4), np.stack(value, axis=-1) / 6

    def roughness(self) -> Floats:
        """A matrix (B, B) whose quadratic form is the integral of a surface's squared second derivatives."""
        same = np.eye(self.n)
        slope, bend = (np.diff(same, order, axis=0) for order in (1, 2))
        slopes, bends = slope.T @ slope, bend.T @ bend
        return np.asarray((np.kron(same, bends) + np.kron(bends, same) + 2 * np.kron(slopes, slopes)) / self.spacing**2)


@dataclass(frozen=True, eq=False, slots=True)
class SmoothLogit:
    """The logit of a probability as a smooth function of two parameters, each scaled to -1..1.

    Attributes:
        coefficients, covariance: (B,) a coefficient for each of B products of splines, and their covariance (B, B). Use
            it with Student's t and, for T trials, T - `n_effective` degrees of freedom.
        n_effective: The effective number of coefficients: the sum of the leverages.
        dispersion: The spread between trials over that of independent trainings, at least 0. It is near 1 if trainings
            are independent and the surface fits.
        held_out: (T,) the probability of each trial, predicted from the trials at other places.
    """

    splines: Splines
    coefficients: Floats
    covariance: Floats
    smoothing: float
    n_effective: float
    dispersion: float
    held_out: Floats

    def at(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """The logit and its standard deviation at each point."""
        number, value = self.splines.at(*(np.clip(np.nan_to_num(coordinates), -1, 1) for coordinates in (x, y)))
        logit = (self.coefficients[number] * value).sum(axis=-1)
        deviation = np.sqrt(_quadratic(self.covariance, number, value))
        outside = ~((np.abs(x) <= 1 + _EDGE) & (np.abs(y) <= 1 + _EDGE))
        return np.where(outside, np.nan, logit), np.where(outside, np.nan, deviation)


def fit_smooth(x: Floats, y: Floats, n: Floats, k: Floats, weight: Floats) -> SmoothLogit:
    """Fits the logit of the probability of an ending.

    Args:
        x, y: (T,) the places of the trials, in -1..1.
        n, k: (T,) the number of trainings, at least 1, and the number of trainings with the ending.
    """
    regression = _Regression.of(x, y, n, k, weight)
    best, since_best = None, 0
    for candidate in regression.fits():
        since_best += 1
        if best is None or candidate.score > best.score:
            best, since_best = candidate, 0
        if since_best == _PATIENCE:
            break
    assert best is not None
    return regression.with_covariance(best)


@dataclass(frozen=True, eq=False, slots=True)
class _Fit:
    """A fit with one strength of smoothing.

    Attributes:
        penalty, inverse: (B, B) the matrix of the penalty for B coefficients, and the inverse of the penalized
            information.
        logit, without: (P,) the logit, and the logit predicted from all other places.
    """

    smoothing: float
    coefficients: Floats
    penalty: Floats
    inverse: Floats
    spread: Floats
    logit: Floats
    without: Floats
    score: float


@dataclass(frozen=True, eq=False, slots=True)
class _Regression:
    """A penalized logistic regression on products of splines. Trials at nearly equal points are merged into one place.

    Attributes:
        n, weight, k: (T,) the number of trainings, the weight, and the share with the ending times the weight.
        place: (T,) the place of each trial.
        weight_P, k_P: (P,) the sums of `weight` and `k` over the trials of a place.
        terms: (P, B) sparse, the products of splines.
        squares: (P, B * B) sparse, the products of any two of a place's terms: a weighted sum of its rows is an
            information matrix, and its product with a matrix (B * B,) is the quadratic form of each place's terms.
    """

    n: Floats
    weight: Floats
    k: Floats
    place: Ints
    weight_P: Floats
    k_P: Floats
    splines: Splines
    terms: Any
    squares: Any

    @classmethod
    def of(cls, x: Floats, y: Floats, n: Floats, k: Floats, weight: Floats) -> "_Regression":
        from scipy import sparse

        cell_x, cell_y = (
            np.clip((coordinates + 1) / 2 * _N_PLACES, 0, _N_PLACES - 1).astype(np.int64) for coordinates in (x, y)
        )
        _, place = np.unique(cell_x * _N_PLACES + cell_y, return_inverse=True)
        size, splines = np.bincount(place), Splines.for_trials(len(x))
        number, value = splines.at(_summed(place, x) / size, _summed(place, y) / size)

        def rows(numbers: Ints, values: Floats, n_columns: int) -> Any:
            starts = np.arange(len(size) + 1) * numbers[0].size
            return sparse.csr_array((values.ravel(), numbers.ravel(), starts), shape=(len(size), n_columns))

        n_terms, k = splines.n**2, k / n * weight
        pairs = number[:, :, None] * n_terms + number[:, None, :]
        squares = rows(pairs, value[:, :, None] * value[:, None, :], n_terms**2)
        return cls(
            n,
            weight,
            k,
            place,
            _summed(place, weight),
            _summed(place, k),
            splines,
            rows(number, value, n_terms),
            squares,
        )

    def fits(self) -> Iterator[_Fit]:
        """The smoothest first."""
        mean = (self.k_P.sum() + 0.5) / (self.weight_P.sum() + 1)
        n_terms = self.splines.n**2
        coefficients = np.full(n_terms, np.log(mean / (1 - mean)))
        roughness, ridge = self.splines.roughness(), np.eye(n_terms) / (_PRIOR**2 * n_terms)
        for smoothing in _SMOOTHINGS:
            penalty = smoothing * self.weight.mean() * roughness + ridge
            coefficients = self._maximum(coefficients, penalty)
            yield self._judged(float(smoothing), coefficients, penalty)

    def _maximum(self, coefficients: Floats, penalty: Floats) -> Floats:
        """Maximizes the penalized likelihood by Newton's method; a step that would lower it is halved."""
        from scipy import linalg

        at = self._loss(coefficients, penalty)
        for _ in range(_MOST_STEPS):
            probability = expit(self.terms @ coefficients)
            score = self.terms.T @ (self.k_P - self.weight_P * probability) - penalty @ coefficients
            information = self.summed(self.weight_P * probability * (1 - probability)) + penalty
            step = linalg.cho_solve(linalg.cho_factor(information, check_finite=False), score, check_finite=False)
            ahead = self._loss(coefficients + step, penalty)
            for _ in range(_MOST_HALVINGS):
                if ahead <= at:
                    break
                step = step / 2
                ahead = self._loss(coefficients + step, penalty)
            gained, at, coefficients = at - ahead, ahead, coefficients + step
            if gained < _CONVERGED:
                break
        return coefficients

    def _loss(self, coefficients: Floats, penalty: Floats) -> float:
        logit = self.terms @ coefficients
        return -_likelihood(logit, self.k_P, self.weight_P) + float(coefficients @ penalty @ coefficients) / 2

    def summed(self, factor: Floats) -> Floats:
        """A weighted sum of the places' matrices (B, B)."""
        n_terms = self.splines.n**2
        return np.asarray(self.squares.T @ factor).reshape(n_terms, n_terms)

    def _judged(self, smoothing: float, coefficients: Floats, penalty: Floats) -> _Fit:
        from scipy import linalg

        logit = self.terms @ coefficients
        probability = expit(logit)
        information = self.weight_P * probability * (1 - probability)
        inverse = linalg.inv(self.summed(information) + penalty, check_finite=False)
        spread = self.squares @ inverse.ravel()
        left = np.maximum(1 - information * spread, 1e-3)
        without = logit - spread * (self.k_P - self.weight_P * probability) / left
        score = _likelihood(without, self.k_P, self.weight_P)
        return _Fit(smoothing, coefficients, penalty, inverse, spread, logit, without, score)

    def with_covariance(self, fit: _Fit) -> SmoothLogit:
        place, weight = self.place, self.weight
        probability = expit(fit.logit)
        leverage = self.weight_P * probability * (1 - probability) * fit.spread
        of_trial = probability[place]
        unexplained = np.square(self.k - weight * of_trial)
        independent = np.square(weight) / self.n * of_trial * (1 - of_trial)
        own_leverage = weight * of_trial * (1 - of_trial) * fit.spread[place]
        dispersion = float(unexplained.sum() / (independent * (1 - own_leverage)).sum())
        corrected = unexplained / np.square(1 - np.minimum(leverage[place], _MOST_LEVERAGE))
        scores = self.summed(_summed(place, np.maximum(corrected, independent)))
        return SmoothLogit(
            self.splines,
            fit.coefficients,
            fit.inverse @ (scores + max(dispersion, 1.0) * fit.penalty) @ fit.inverse,
            fit.smoothing,
            float(leverage.sum()),
            dispersion,
            expit(fit.without)[place],
        )


def _quadratic(matrix: Floats, number: Ints, value: Floats) -> Floats:
    rows = ((matrix[number[..., at, None], number] * value).sum(axis=-1) for at in range(number.shape[-1]))
    return np.asarray(sum(value[..., at] * row for at, row in enumerate(rows)))


def _summed(place: Ints, values: Floats) -> Floats:
    return np.asarray(np.bincount(place, values), dtype=np.float64)


def _likelihood(logit: Floats, k: Floats, n: Floats) -> float:
    return float(k @ logit - n @ np.logaddexp(0, logit))


def expit(logit: Floats) -> Floats:
    """The inverse of the logit."""
    from scipy import special

    return np.asarray(special.expit(logit))
