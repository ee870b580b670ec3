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
"""Divided by the mean weight of a trial, so that twice as many trainings with the same shares give the same surface."""
_PATIENCE = 2
"""The search for a variance ends after so many worse ones."""
_LENGTH = 1.0  # of the kernel, where coordinates go from -1 to 1
_LENGTHS, _LIKELY_VARIANCES = (0.1, 2.0), (0.5, 100.0)
"""Bounds of `likely_kernel`: a very long kernel would rule out an island that no trial has met."""
_PLANE_DEVIATION = 10.0  # the prior standard deviation of the plane's coefficients
_MIN_LANDMARKS, _MAX_LANDMARKS = 36, 300
_N_CELLS = 96  # along each coordinate; trials in one cell are one place
_MAX_LEVERAGE = 0.5
_MAX_STEPS, _CONVERGED = 100, 1e-6  # of Newton's method, which ends when the loss falls by less


@dataclass(frozen=True, eq=False)
class _Terms:
    """1, the coordinates, and the process at landmarks; scaled so that each coefficient has the prior N(0, 1)."""

    landmarks_MD: Floats
    root_MM: Floats
    lengths: Any
    variance: float

    def at(self, x_PD: Floats) -> Floats:
        from scipy import linalg

        kernel_MP = _matern(self.landmarks_MD, x_PD, self.lengths)
        process_PM = linalg.solve_triangular(self.root_MM, kernel_MP, lower=True).T
        plane = np.column_stack([np.ones(len(x_PD)), x_PD])
        return np.column_stack([_PLANE_DEVIATION * plane, np.sqrt(self.variance) * process_PM])


@dataclass(frozen=True, kw_only=True, eq=False)
class SmoothLogit:
    """A fit.

    Attributes:
        n_effective: The fitted degrees of freedom.
        dispersion: The trials' scatter over that of independent trainings.
        held_out_T: Each trial's share, predicted from trials at other places.
    """

    terms: _Terms
    coefficients_M: Floats
    covariance_MM: Floats
    n_effective: float
    dispersion: float
    held_out_T: Floats

    def at(self, x_PD: Floats) -> tuple[Floats, Floats]:
        """The logit's mean and standard deviation at points, (P,) each."""
        terms_PM = self.terms.at(x_PD)
        # The part of the process's variance that landmarks do not span.
        unspanned_P = np.maximum(self.terms.variance - np.square(terms_PM[:, x_PD.shape[1] + 1 :]).sum(axis=1), 0)
        variance_P = ((terms_PM @ self.covariance_MM) * terms_PM).sum(axis=1)
        return terms_PM @ self.coefficients_M, np.sqrt(variance_P + max(self.dispersion, 1.0) * unspanned_P)

    def believing(self, x_PD: Floats, n: float) -> Self:
        """As after `n` further trainings at each point that end as it predicts."""
        terms_PM = self.terms.at(x_PD)
        p_P = expit(terms_PM @ self.coefficients_M)
        covariance_PM = terms_PM @ self.covariance_MM
        noise_PP = np.diag(1 / (n * p_P * (1 - p_P)))
        gain_PM = np.linalg.solve(covariance_PM @ terms_PM.T + noise_PP, covariance_PM)
        return replace(self, covariance_MM=self.covariance_MM - covariance_PM.T @ gain_PM)


def fit_logit(
    x_TD: Floats,
    n_T: Floats,
    k_T: Floats,
    weight_T: Floats | None = None,
    *,
    lengths: Any = _LENGTH,
    variances: Sequence[float] | None = None,
) -> SmoothLogit:
    """Fits trials at `x_TD`, where `k_T` of `n_T` trainings have the property, in sum some but not all. `weight_T`: for
    how many trainings a trial counts; `lengths`: of the kernel, one or (D,); `variances`: those to try."""
    from scipy import linalg

    weight_T, share_T = n_T if weight_T is None else weight_T, k_T / n_T
    _, place_T = np.unique(np.floor((x_TD + 1) / 2 * _N_CELLS), axis=0, return_inverse=True)
    x_PD = np.column_stack([np.bincount(place_T, column) for column in x_TD.T]) / np.bincount(place_T)[:, None]
    n_P, k_P = (np.bincount(place_T, each).astype(np.float64) for each in (weight_T, weight_T * share_T))
    n_landmarks = np.clip((2.5 * len(n_T) ** 0.25 + 3) ** 2, _MIN_LANDMARKS, _MAX_LANDMARKS)
    landmarks_MD = _spread_out(x_PD, min(int(n_landmarks), len(x_PD)))
    jitter = 1e-8 * np.eye(len(landmarks_MD))
    root_MM = linalg.cholesky(_matern(landmarks_MD, landmarks_MD, lengths) + jitter, lower=True)
    best: tuple[Any, ...] = (-np.inf,)
    n_worse, terms, n_plane = 0, _Terms(landmarks_MD, root_MM, lengths, 1.0), 1 + x_TD.shape[1]
    b_M = np.zeros(n_plane + len(landmarks_MD))
    for variance in variances or np.divide(_VARIANCES, weight_T.mean()):
        start_M = np.append(b_M[:n_plane], b_M[n_plane:] * np.sqrt(terms.variance / variance))
        terms = replace(terms, variance=variance)
        terms_PM = terms.at(x_PD)
        b_M = _coefficients(terms_PM, n_P, k_P, start_M)
        logit_P = terms_PM @ b_M
        p_P = expit(logit_P)
        information_P = n_P * p_P * (1 - p_P)
        inverse_MM = linalg.inv((terms_PM.T * information_P) @ terms_PM + np.eye(len(b_M)), check_finite=False)
        variance_P = ((terms_PM @ inverse_MM) * terms_PM).sum(axis=1)
        # One step of Newton's method without the place's own trainings.
        held_out_P = logit_P - variance_P * (k_P - n_P * p_P) / np.maximum(1 - information_P * variance_P, 1e-3)
        n_worse += 1
        if (score := _likelihood(held_out_P, n_P, k_P)) > best[0]:
            best, n_worse = (score, terms, terms_PM, b_M, p_P, inverse_MM, variance_P, held_out_P), 0
        if n_worse == _PATIENCE:
            break
    _, terms, terms_PM, b_M, p_P, inverse_MM, variance_P, held_out_P = best
    leverage_P, p_T = n_P * p_P * (1 - p_P) * variance_P, p_P[place_T]
    squares_T = np.square(weight_T * (share_T - p_T))
    independent_T = np.square(weight_T) / n_T * p_T * (1 - p_T)
    own_leverage_T = weight_T * p_T * (1 - p_T) * variance_P[place_T]
    dispersion = float(squares_T.sum() / (independent_T * (1 - own_leverage_T)).sum())
    corrected_T = squares_T / np.square(1 - np.minimum(leverage_P, _MAX_LEVERAGE))[place_T]
    scores_MM = (terms_PM.T * np.bincount(place_T, np.maximum(corrected_T, independent_T))) @ terms_PM
    return SmoothLogit(
        terms=terms,
        coefficients_M=b_M,
        covariance_MM=inverse_MM @ (scores_MM + max(dispersion, 1.0) * np.eye(len(b_M))) @ inverse_MM,
        n_effective=float(leverage_P.sum()),
        dispersion=dispersion,
        held_out_T=expit(held_out_P)[place_T],
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


def _coefficients(terms_PM: Floats, n_P: Floats, k_P: Floats, b_M: Floats) -> Floats:
    """Newton's method on the log-likelihood and the prior, from `b_M`; a step that overshoots is halved."""
    from scipy import linalg

    def loss_at(b_M: Floats) -> float:
        return float(b_M @ b_M / 2 - _likelihood(terms_PM @ b_M, n_P, k_P))

    loss = loss_at(b_M)
    for _ in range(_MAX_STEPS):
        p_P = expit(terms_PM @ b_M)
        information_MM = (terms_PM.T * (n_P * p_P * (1 - p_P))) @ terms_PM + np.eye(len(b_M))
        gradient_M = terms_PM.T @ (k_P - n_P * p_P) - b_M
        step_M = linalg.solve(information_MM, gradient_M, assume_a="pos", check_finite=False)
        while (new_loss := loss_at(b_M + step_M)) > loss + _CONVERGED:
            step_M = step_M / 2
        b_M, gained, loss = b_M + step_M, loss - new_loss, new_loss
        if gained < _CONVERGED:
            break
    return b_M


def _likelihood(logit: Floats, n_P: Floats, k_P: Floats) -> float:
    return float(k_P @ logit - n_P @ np.logaddexp(0, logit))
