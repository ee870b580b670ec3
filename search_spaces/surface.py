"""The logit of a share of trainings as a smooth function of parameters, for phase diagrams and the sampler `boundary`.

It is a plane plus a Gaussian process with a Matern 5/2 kernel, in Nystroem's features at landmarks among the trials'
places. Of several variances of the process the one is taken that predicts held-out places best; each place is held out
by one step of Newton's method. Trials in one cell of a fine grid are one place. Trials that are few and have many
parameters, as a sampler's, leave the kernel to `likely_kernel`.

The covariance has the scores summed by trial, each divided by 1 - leverage and at least as large as independent
trainings would give, and the prior times the dispersion. A point's variance includes what landmarks do not span.

Axes: T trial, P place or point, D coordinate (scaled to -1..1), M feature, one for each term.
Source: Williams & Seeger 2001 (Nystroem); Rad & Maleki 2020 (held-out places); Liang & Zeger 1986 (scores by trial);
Wahba 1983 (the prior's part); Gart & Zweifel 1967 (empirical logits); Ginsbourger, Le Riche & Carraro 2010 (believing).
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

_VARIANCES = tuple(10.0**power for power in range(-1, 7))
"""Divided by the mean weight of a trial: twice the trainings that end alike give the same surface."""
_PATIENCE = 2
"""The search for a variance ends after so many worse ones."""
_LENGTH = 1.0
_LENGTHS, _LIKELY_VARIANCES = (0.1, 2.0), (0.5, 100.0)
"""Bounds of `likely_kernel`: a very long kernel would rule out an island that no trial has met."""
_PLANE_DEVIATION = 10.0
_FEWEST_LANDMARKS, _MAX_LANDMARKS = 36, 300
_N_CELLS = 96
_MAX_LEVERAGE = 0.5
_MAX_STEPS, _CONVERGED = 100, 1e-6


@dataclass(frozen=True, eq=False)
class _Terms:
    """1, the coordinates, and the process at landmarks; scaled so that each coefficient has the prior N(0, 1)."""

    landmarks_MD: Floats
    root_MM: Floats
    lengths: Any
    variance: float

    def at(self, x_PD: Floats) -> Floats:
        from scipy import linalg

        seen = linalg.solve_triangular(self.root_MM, _matern(self.landmarks_MD, x_PD, self.lengths), lower=True).T
        plane = np.column_stack([np.ones(len(x_PD)), x_PD])
        return np.column_stack([_PLANE_DEVIATION * plane, np.sqrt(self.variance) * seen])


@dataclass(frozen=True, kw_only=True, eq=False)
class SmoothLogit:
    """A fit.

    Attributes:
        n_effective: The fitted degrees of freedom.
        dispersion: The trials' scatter over that of independent trainings.
        held_out_T: The share at each trial, predicted from trials at other places.
    """

    terms: _Terms
    coefficients_M: Floats
    covariance_MM: Floats
    n_effective: float
    dispersion: float
    held_out_T: Floats

    def at(self, x_PD: Floats) -> tuple[Floats, Floats]:
        """The logit's mean and standard deviation at points, (P,) each."""
        terms = self.terms.at(x_PD)
        unseen = np.maximum(self.terms.variance - np.square(terms[:, x_PD.shape[1] + 1 :]).sum(axis=1), 0)
        spread = ((terms @ self.covariance_MM) * terms).sum(axis=1)
        return terms @ self.coefficients_M, np.sqrt(spread + max(self.dispersion, 1.0) * unseen)

    def believing(self, x_PD: Floats, n: float) -> Self:
        """After `n` further trainings at each point that end as it predicts."""
        terms = self.terms.at(x_PD)
        p = expit(terms @ self.coefficients_M)
        seen = terms @ self.covariance_MM
        gain = np.linalg.solve(seen @ terms.T + np.diag(1 / (n * p * (1 - p))), seen)
        return replace(self, covariance_MM=self.covariance_MM - seen.T @ gain)


def fit_logit(
    x_TD: Floats,
    n_T: Floats,
    k_T: Floats,
    weight_T: Floats | None = None,
    *,
    lengths: Any = _LENGTH,
    variances: Sequence[float] | None = None,
) -> SmoothLogit:
    """Fits trials at `x_TD`, `k_T` of whose `n_T` trainings count, some but not all; `weight_T` is for how many
    trainings a trial counts."""
    from scipy import linalg

    weight_T, share_T = n_T if weight_T is None else weight_T, k_T / n_T
    _, place = np.unique(np.floor((x_TD + 1) / 2 * _N_CELLS), axis=0, return_inverse=True)
    x_PD = np.column_stack([np.bincount(place, column) for column in x_TD.T]) / np.bincount(place)[:, None]
    n_P, k_P = (np.bincount(place, each).astype(np.float64) for each in (weight_T, weight_T * share_T))
    n_landmarks = np.clip((2.5 * len(n_T) ** 0.25 + 3) ** 2, _FEWEST_LANDMARKS, _MAX_LANDMARKS)
    landmarks_MD = _spread_out(x_PD, min(int(n_landmarks), len(x_PD)))
    jitter = 1e-8 * np.eye(len(landmarks_MD))
    root_MM = linalg.cholesky(_matern(landmarks_MD, landmarks_MD, lengths) + jitter, lower=True)
    best: tuple[Any, ...] = (-np.inf,)
    since, terms = 0, _Terms(landmarks_MD, root_MM, lengths, 1.0)
    b = np.zeros(1 + x_TD.shape[1] + len(landmarks_MD))
    for variance in variances or np.divide(_VARIANCES, weight_T.mean()):
        start = np.append(b[: 1 + x_TD.shape[1]], b[1 + x_TD.shape[1] :] * np.sqrt(terms.variance / variance))
        terms = replace(terms, variance=variance)
        features = terms.at(x_PD)
        b = _coefficients(features, n_P, k_P, start)
        logit = features @ b
        p = expit(logit)
        information_P = n_P * p * (1 - p)
        inverse = linalg.inv((features.T * information_P) @ features + np.eye(len(b)), check_finite=False)
        spread_P = ((features @ inverse) * features).sum(axis=1)
        without = logit - spread_P * (k_P - n_P * p) / np.maximum(1 - information_P * spread_P, 1e-3)
        since += 1
        if (score := _likelihood(without, n_P, k_P)) > best[0]:
            best, since = (score, terms, features, b, p, inverse, spread_P, without), 0
        if since == _PATIENCE:
            break
    _, terms, features, b, p, inverse, spread_P, without = best
    leverage_P, p_T = n_P * p * (1 - p) * spread_P, p[place]
    squares_T = np.square(weight_T * (share_T - p_T))
    independent_T = np.square(weight_T) / n_T * p_T * (1 - p_T)
    own_leverage_T = weight_T * p_T * (1 - p_T) * spread_P[place]
    dispersion = float(squares_T.sum() / (independent_T * (1 - own_leverage_T)).sum())
    corrected_T = squares_T / np.square(1 - np.minimum(leverage_P, _MAX_LEVERAGE))[place]
    scores = (features.T * np.bincount(place, np.maximum(corrected_T, independent_T))) @ features
    return SmoothLogit(
        terms=terms,
        coefficients_M=b,
        covariance_MM=inverse @ (scores + max(dispersion, 1.0) * np.eye(len(b))) @ inverse,
        n_effective=float(leverage_P.sum()),
        dispersion=dispersion,
        held_out_T=expit(without)[place],
    )


def likely_kernel(x_TD: Floats, n_T: Floats, k_T: Floats) -> dict[str, Any]:
    """The lengths and the variance, for `fit_logit`, that maximize the likelihood of the trials' empirical logits."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    with_T, without_T = k_T + 0.5, n_T - k_T + 0.5
    kernel = ConstantKernel(4.0, _LIKELY_VARIANCES) * Matern(np.full(x_TD.shape[1], _LENGTH), _LENGTHS, nu=2.5)
    process = GaussianProcessRegressor(kernel, alpha=1 / with_T + 1 / without_T)
    with warnings.catch_warnings():
        # A parameter without effect has its length at the bound.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = process.fit(x_TD, np.log(with_T / without_T)).kernel_
    return {"lengths": found.k2.length_scale, "variances": (float(found.k1.constant_value),)}


def expit(logit: Floats) -> Floats:
    """The inverse of the logit."""
    from scipy import special

    return np.asarray(special.expit(logit))


def _matern(a_MD: Floats, b_PD: Floats, lengths: Any) -> Floats:
    a, b = a_MD / lengths, b_PD / lengths
    squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2 * a @ b.T
    distance = np.sqrt(5 * np.maximum(squares, 0))
    return np.asarray((1 + distance + np.square(distance) / 3) * np.exp(-distance))


def _spread_out(x_PD: Floats, n: int) -> Floats:
    """Chooses each landmark farthest from the earlier ones."""
    chosen, nearest = [0], np.full(len(x_PD), np.inf)
    while len(chosen) < n:
        nearest = np.minimum(nearest, np.square(x_PD - x_PD[chosen[-1]]).sum(axis=1))
        chosen.append(int(nearest.argmax()))
    return x_PD[chosen]


def _coefficients(features: Floats, n_P: Floats, k_P: Floats, b: Floats) -> Floats:
    """Newton's method on the log-likelihood and the prior, from `b`."""
    from scipy import linalg

    loss = b @ b / 2 - _likelihood(features @ b, n_P, k_P)
    for _ in range(_MAX_STEPS):
        p = expit(features @ b)
        information = (features.T * (n_P * p * (1 - p))) @ features + np.eye(len(b))
        step = linalg.solve(information, features.T @ (k_P - n_P * p) - b, assume_a="pos", check_finite=False)
        while (ahead := (b + step) @ (b + step) / 2 - _likelihood(features @ (b + step), n_P, k_P)) > loss + _CONVERGED:
            step = step / 2
        b, gained, loss = b + step, loss - ahead, ahead
        if gained < _CONVERGED:
            break
    return b


def _likelihood(logit: Floats, n_P: Floats, k_P: Floats) -> float:
    return float(k_P @ logit - n_P @ np.logaddexp(0, logit))
