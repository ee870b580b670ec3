"""Fits the probability that a training ends stuck over the unit cube: a Gaussian process on empirical logits of counts.

A trial with `k` of `n` trainings stuck is one observation: the empirical logit `log((k + 1/2) / (n - k + 1/2))`, whose
noise has the variance `1 / (k + 1/2) + 1 / (n - k + 1/2)`. A trial of 200 trainings therefore weighs more than one of
8, and a trial whose trainings all agree shows the side of the boundary but not the distance from it. The kernel is
Matérn 5/2 with a length per axis and hyperparameters of maximum likelihood. scikit-learn's own classifier would need a
row per training, and a matrix with the squared number of trainings as its size.

Axes: N trial, D coordinate. Source: Gart & Zweifel 1967, Biometrika 54 (the logit and its variance); Rasmussen &
Williams 2006, section 2.2 (the process with a noise variance of its own for each observation).
"""

import functools
import warnings
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

Array: TypeAlias = NDArray[np.float64]

_SHORTEST, _LONGEST = 0.05, 1.0
"""Bounds of the kernel's length on each axis, relative to the axis's range. If all trials agree, the likelihood grows
with the length without bound, and the surface would rule out an island of the other outcome that no trial has hit."""
_LEAST_VARIANCE, _MOST_VARIANCE = 0.5, 100.0


@dataclass(frozen=True, slots=True)
class Counts:
    """How many trainings of each finished trial are stuck, out of how many, with the trials' points.

    Attributes:
        points_ND: The trials' points in the unit cube.
        n_stuck_N: The number of stuck trainings; computed as share times number, so rounding may make it fractional.
        n_N: The number of judged trainings.
    """

    points_ND: Array
    n_stuck_N: Array
    n_N: Array

    def logits(self) -> Array:
        """Returns the logit of each trial's stuck rate, (N,)."""
        return np.log((self.n_stuck_N + 0.5) / (self.n_N - self.n_stuck_N + 0.5))

    def variances(self) -> Array:
        """Returns the variance of the logit of each trial's stuck rate, (N,)."""
        return 1 / (self.n_stuck_N + 0.5) + 1 / (self.n_N - self.n_stuck_N + 0.5)


class StuckSurface:
    """A model of the stuck rate's logit on the unit cube, which gives its mean and standard deviation at any point.

    Args:
        process: A fitted Gaussian process.
        counts: The trials that it was fitted to.
    """

    def __init__(self, process: Any, counts: Counts) -> None:
        self._process = process
        self._counts = counts

    @classmethod
    def fit(cls, counts: Counts) -> Self:
        """Fits the kernel and the surface to counts. Equal counts give equal surfaces."""
        kernel = _fitted_kernel(
            counts.points_ND.shape, *(array.tobytes() for array in (counts.points_ND, counts.n_stuck_N, counts.n_N))
        )
        return cls(_conditioned(kernel, counts.points_ND, counts.logits(), counts.variances()), counts)

    def logit(self, points_ND: Array) -> tuple[Array, Array]:
        """Returns the mean and standard deviation of the stuck rate's logit at each point, (N,) each."""
        mean_N, deviation_N = self._process.predict(points_ND, return_std=True)
        return mean_N, deviation_N

    def believing(self, points_ND: Array, n: int) -> Self:
        """Returns the surface that would follow if `n` trainings at each point ended exactly as predicted.

        Source: Ginsbourger, Le Riche & Carraro 2010 (the Kriging believer).
        """
        if not len(points_ND):
            return self
        mean_N, _ = self.logit(points_ND)
        chance_N = 1 / (1 + np.exp(-mean_N))
        noise_N = 1 / (n * chance_N + 0.5) + 1 / (n * (1 - chance_N) + 0.5)
        counts = self._counts
        process = _conditioned(
            self._process.kernel_,
            np.concatenate([counts.points_ND, points_ND]),
            np.concatenate([counts.logits(), mean_N]),
            np.concatenate([counts.variances(), noise_N]),
        )
        return type(self)(process, counts)


@functools.lru_cache(maxsize=4)
def _fitted_kernel(shape: tuple[int, int], points: bytes, n_stuck: bytes, n: bytes) -> Any:
    """Returns the kernel of maximum likelihood. Cached, because all draws of a batch use the same counts."""
    points_ND, n_stuck_N, n_N = (np.frombuffer(data) for data in (points, n_stuck, n))
    counts = Counts(points_ND.reshape(shape), n_stuck_N, n_N)
    kernel = ConstantKernel(4.0, (_LEAST_VARIANCE, _MOST_VARIANCE)) * Matern(
        np.full(shape[1], 0.5), (_SHORTEST, _LONGEST), nu=2.5
    )
    process = GaussianProcessRegressor(kernel, alpha=counts.variances())
    with warnings.catch_warnings():
        # scikit-learn warns if the likelihood is largest at a bound of a kernel's length scale, as is the case for a
        # parameter that has no effect.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return process.fit(counts.points_ND, counts.logits()).kernel_


def _conditioned(kernel: Any, points_ND: Array, logits_N: Array, variances_N: Array) -> Any:
    return GaussianProcessRegressor(kernel, alpha=variances_N, optimizer=None).fit(points_ND, logits_N)
