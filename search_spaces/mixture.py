"""The density of a TPE model at many points, and points drawn from it: Optuna's computation with the constants cached.

Axes: `P` point, `K` kernel, `F` feature of a point, `V` value of a categorical parameter.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import CategoricalDistribution

from attnsweep.search_spaces.optuna_internals import kernels_of, log_gauss_mass

_MOST_VALUES = 256
"""The largest number of values of an integer parameter whose columns of log densities (K,) are cached."""

_FAINTEST = -700.0
"""A lower bound on the log density of a kernel relative to the largest one: NumPy's exp takes six times as long where
it underflows."""

_Floats: TypeAlias = NDArray[np.float64]


class Mixture:
    """The mixture of kernels of a TPE estimator. Equals Optuna's densities and samples up to rounding, but is faster.

    A kernel is a product of truncated normal distributions, one per parameter. The log density of each is quadratic in
    the parameter, so those of all kernels at all points are one matrix product: (1, x, x^2) times (c, m/s^2, -1/2s^2).
    Optuna computes the constant c, which contains the mass between the bounds, for each set of points.

    Args:
        estimator: Optuna's Parzen estimator.
    """

    def __init__(self, estimator: Any) -> None:
        self._weights, kernels = kernels_of(estimator)
        self._kernels = {name: kernel for name, (_, kernel) in kernels.items()}
        self._categorical = [
            name for name, (distribution, _) in kernels.items() if isinstance(distribution, CategoricalDistribution)
        ]
        self._ranges: dict[str, tuple[_Floats, _Floats]] = {}
        constant_K: _Floats = np.log(self._weights)
        self._scale_of: dict[str, Callable[[_Floats], _Floats]] = {}
        self._column_of: dict[str, Callable[[float], _Floats]] = {}
        factors_FK: list[_Floats] = []
        for name, kernel in self._kernels.items():
            if name in self._categorical:
                self._column_of[name] = _choice_column(np.log(kernel.weights).T)
                continue
            low, high = kernel.adapted_low, kernel.adapted_high
            constant_K -= log_gauss_mass((low - kernel.mu) / kernel.sigma, (high - kernel.mu) / kernel.sigma)
            if kernel.step != 0.0:
                self._column_of[name] = lru_cache(_MOST_VALUES)(_integer_column(kernel))
                continue
            # Coordinates are relative to the middle of the parameter's range, which keeps their squares small.
            middle = (low + high) / 2
            self._scale_of[name] = _scale(middle, is_log=kernel.is_log)
            mu_K, precision_K = kernel.mu - middle, kernel.sigma**-2.0
            constant_K -= mu_K**2 * precision_K / 2 + np.log(kernel.sigma) + math.log(2 * math.pi) / 2
            factors_FK += [mu_K * precision_K, -precision_K / 2]
        self._factors_FK = np.array([constant_K, *factors_FK])

    def log_pdf(self, points: dict[str, NDArray[Any]]) -> _Floats:
        """Returns the log density of the mixture at each point, (P,).

        Args:
            points: The values (P,) of each parameter, in Optuna's internal form.
        """
        features_FP = [np.ones_like(next(iter(points.values())), dtype=np.float64)]
        for name, scale in self._scale_of.items():
            x_P = scale(points[name])
            features_FP += [x_P, x_P**2]
        log_PK: _Floats = np.array(features_FP).T @ self._factors_FK
        for name, column_of in self._column_of.items():
            log_PK += np.array([column_of(float(value)) for value in points[name]])
        most_P = log_PK.max(axis=1)
        log_PK -= most_P[:, None]
        np.maximum(log_PK, _FAINTEST, out=log_PK)
        density: _Floats = np.log(np.exp(log_PK, out=log_PK).sum(axis=1)) + most_P
        return density

    def sample(self, generator: np.random.RandomState, n_points: int) -> dict[str, _Floats]:
        """Draws `n_points` points. Returns values (P,) by parameter name, in Optuna's internal representation."""
        kernel_P = generator.choice(len(self._weights), p=self._weights, size=n_points)
        drawn = {
            name: _choice(self._kernels[name].weights[kernel_P], generator.rand(n_points)) for name in self._categorical
        }
        numeric = [name for name in self._kernels if name not in drawn]
        for name, quantile_P in zip(numeric, generator.uniform(size=(len(numeric), n_points)), strict=True):
            drawn[name] = self._number(name, kernel_P, quantile_P)
        return {name: drawn[name] for name in self._kernels}

    def _number(self, name: str, kernel_P: NDArray[np.int64], quantile_P: _Floats) -> _Floats:
        """Returns values of a numeric parameter at the given quantiles of the chosen kernels, in closed form.

        Optuna inverts each cumulative distribution by Newton's method.
        """
        from scipy import special

        kernels = self._kernels[name]
        if name not in self._ranges:
            low_K, high_K = (
                (bound - kernels.mu) / kernels.sigma for bound in (kernels.adapted_low, kernels.adapted_high)
            )
            self._ranges[name] = special.ndtr(low_K), special.ndtr(high_K)
        below_P, above_P = (bound_K[kernel_P] for bound_K in self._ranges[name])
        x_P: _Floats = kernels.mu[kernel_P] + kernels.sigma[kernel_P] * special.ndtri(
            below_P + quantile_P * (above_P - below_P)
        )
        x_P = np.exp(x_P) if kernels.is_log else x_P
        if kernels.step != 0.0:
            x_P = np.clip(
                kernels.low + np.round((x_P - kernels.low) / kernels.step) * kernels.step, kernels.low, kernels.high
            )
        return x_P


def _choice(weights_PV: _Floats, quantile_P: _Floats) -> _Floats:
    cumulated_PV = np.cumsum(weights_PV, axis=1)
    # The last cumulated weight is 1 up to rounding, so it is not compared with the quantile.
    chosen_P: _Floats = np.sum(cumulated_PV[:, :-1] < quantile_P[:, None], axis=1).astype(np.float64)
    return chosen_P


def _scale(middle: float, *, is_log: bool) -> Callable[[_Floats], _Floats]:
    return lambda x: (np.log(x) if is_log else x) - middle


def _choice_column(logs_VK: _Floats) -> Callable[[float], _Floats]:
    return lambda value: logs_VK[int(value)]


def _integer_column(kernels: Any) -> Callable[[float], _Floats]:
    """Returns a function that computes each kernel's log mass (K,) on the interval of width `step` around a value."""
    scale = math.log if kernels.is_log else float
    half = kernels.step / 2

    def column(value: float) -> _Floats:
        left, right = scale(value - half), scale(value + half)
        mass: _Floats = log_gauss_mass((left - kernels.mu) / kernels.sigma, (right - kernels.mu) / kernels.sigma)
        return mass

    return column
