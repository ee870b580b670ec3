"""An Optuna sampler that searches, instead of an optimum, the boundary at which half of a trial's trainings end stuck.

Names of arrays end with letters for their axes: N trial, D coordinate of the unit cube (the search space scaled to 0 to
1).
"""

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState
from scipy.stats import qmc
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from attnsweep.search_spaces.measured import N_JUDGED

Array: TypeAlias = NDArray[np.float64]

_SHORTEST, _LONGEST = 0.05, 1.0
"""Bounds of the length scale of the Gaussian process's kernel along each axis, relative to the axis's range. If all
trials agree, the likelihood grows with the length without bound. A very long kernel would rule out that trials end
differently in a small region without trials."""
_LEAST_VARIANCE, _MOST_VARIANCE = 0.5, 100.0


@dataclass(frozen=True, slots=True)
class Counts:
    """The results of finished trials: how many trainings of each trial were judged (did not fail), how many are stuck,
    and the trials' points in the search space.

    Attributes:
        points_ND: The trials' points in the unit cube, to which the search space is scaled.
        n_stuck_N: The number of stuck trainings; computed as share times number, so rounding may make it fractional.
        n_N: The number of judged trainings.
    """

    points_ND: Array
    n_stuck_N: Array
    n_N: Array

    def logits(self) -> Array:
        """Returns for each trial the logit of the share of its trainings that are stuck, (n_trials,)."""
        return np.log((self.n_stuck_N + 0.5) / (self.n_N - self.n_stuck_N + 0.5))

    def variances(self) -> Array:
        """Returns for each trial how uncertain its share of stuck trainings is: the variance of the share's logit,
        (n_trials,)."""
        return 1 / (self.n_stuck_N + 0.5) + 1 / (self.n_N - self.n_stuck_N + 0.5)


class StuckSurface:
    """A Gaussian process that models the share of stuck trainings, as a logit, as a function of the parameters. It
    gives a mean and a standard deviation at any point.

    Points lie in the unit cube, to which the search space is scaled.

    A trial with `k` of `n` trainings stuck is one observation: the empirical logit `log((k + 1/2) / (n - k + 1/2))`,
    whose noise has the variance `1 / (k + 1/2) + 1 / (n - k + 1/2)`. A trial of 200 trainings therefore weighs more
    than one of 8. A trial whose trainings all agree shows on which side of the boundary it is, but hardly how far from
    it. The kernel is Matérn 5/2 with one length per axis; its hyperparameters maximize the likelihood. scikit-learn's
    own classifier would need one row per training, and a matrix of (number of trainings)^2 entries.

    Args:
        process: A fitted Gaussian process.
        counts: The trials that it was fitted to.

    Source: Gart & Zweifel 1967, Biometrika 54 (the logit and its variance); Rasmussen & Williams 2006, section 2.2 (the
    process with a noise variance of its own for each observation).
    """

    def __init__(self, process: Any, counts: Counts) -> None:
        self._process = process
        self._counts = counts

    @classmethod
    def fit(cls, counts: Counts) -> Self:
        """Fits a Gaussian process, including the hyperparameters of its kernel, to the counts of stuck trainings. The
        same counts always give the same fit.
        """
        kernel = _fitted_kernel(
            counts.points_ND.shape, *(array.tobytes() for array in (counts.points_ND, counts.n_stuck_N, counts.n_N))
        )
        return cls(_conditioned(kernel, counts.points_ND, counts.logits(), counts.variances()), counts)

    def logit(self, points_ND: Array) -> tuple[Array, Array]:
        """Predicts at each given point of the search space the logit of the share of trainings that get stuck: its mean
        and its standard deviation, (n_points,) each."""
        mean_N, deviation_N = self._process.predict(points_ND, return_std=True)
        return mean_N, deviation_N

    def believing(self, points_ND: Array, n: int) -> Self:
        """Returns the Gaussian process that results if `n` imagined trainings at each given point are added to the
        measured ones. The share of them that ends stuck is the one that this process predicts there.

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
    points_ND, n_stuck_N, n_N = (np.frombuffer(data) for data in (points, n_stuck, n))
    counts = Counts(points_ND.reshape(shape), n_stuck_N, n_N)
    kernel = ConstantKernel(4.0, (_LEAST_VARIANCE, _MOST_VARIANCE)) * Matern(
        np.full(shape[1], 0.5), (_SHORTEST, _LONGEST), nu=2.5
    )
    process = GaussianProcessRegressor(kernel, alpha=counts.variances())
    with warnings.catch_warnings():
        # scikit-learn warns if the likelihood is largest at a bound of a kernel's length scale. This is normal for a
        # parameter that has no effect.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return process.fit(counts.points_ND, counts.logits()).kernel_


def _conditioned(kernel: Any, points_ND: Array, logits_N: Array, variances_N: Array) -> Any:
    return GaussianProcessRegressor(kernel, alpha=variances_N, optimizer=None).fit(points_ND, logits_N)


_STRADDLE = 1.96
_N_CANDIDATES = 1024


class BoundarySampler(BaseSampler):
    """Draws trials near the boundary of being stuck, where about half of a trial's trainings end stuck.

    A `StuckSurface` is fitted to the finished trials, over parameters scaled to the unit cube: logarithmic ones by
    their logarithm, categorical ones as one-hot vectors. Among quasi-random candidates the sampler chooses the one with
    the largest `1.96 * deviation - |mean logit|` (the "straddle"): a point whose rate is uncertain and may be above or
    below one half. Running trials count as if they had ended as expected, so that the points of a batch spread out.
    Until enough trials have finished, points are quasi-random. Conditional parameters (parameters that depend on
    another one) are drawn at random.

    The surface models the objective's value, in which a diverged training counts as stuck under `minimize` and as not
    stuck under `maximize`. Draws depend on the seeds, on the finished trials and on the running ones.

    Args:
        space: The unconditional parameters.
        seed: The seed of this trial's candidates.
        layout_seed: The seed of the quasi-random sequence, from which the first trials are drawn; the same for all
            trials of a sweep.
        n_replicates: The number of trainings of trials without the attribute `N_JUDGED`.
        n_startup: The number of finished trials from which on the surface is used.

    Source: Bryan et al. 2005, NeurIPS 18 (the straddle); compared with its successors for noisy observations by Lyu,
    Binois & Ludkovski 2021, Stat. Comput. 31.
    """

    def __init__(
        self,
        space: Mapping[str, BaseDistribution],
        *,
        seed: int,
        layout_seed: int,
        n_replicates: int,
        n_startup: int,
    ) -> None:
        self._space = {name: distribution for name, distribution in space.items() if not distribution.single()}
        self._seed, self._layout_seed = seed, layout_seed
        self._n_replicates = n_replicates
        self._n_startup = n_startup
        self._random = RandomSampler(seed=seed)

    def infer_relative_search_space(self, *_: object) -> dict[str, BaseDistribution]:
        """Returns all parameters that are drawn together. The sweep determines them, not past trials."""
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draws all unconditional parameters of a trial: in the first trials from a quasi-random sequence, later where
        the predicted share of trainings that get stuck is near one half or uncertain."""
        if not search_space:
            return {}
        cube = _Cube(search_space)
        past = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING))
        complete = [
            other for other in past if other.number != trial.number and search_space.keys() <= other.params.keys()
        ]
        finished = [other for other in complete if other.state == TrialState.COMPLETE]
        if len(finished) < self._n_startup:
            return cube.values(cube.quasi_random(trial.number + 1, self._layout_seed)[-1])
        surface = StuckSurface.fit(self._counts(cube, finished))
        pending = [other for other in complete if other.state == TrialState.RUNNING]
        surface = surface.believing(cube.points(pending), self._n_replicates)
        candidates = cube.quasi_random(_N_CANDIDATES, self._seed)
        mean, deviation = surface.logit(candidates)
        return cube.values(candidates[np.argmax(_STRADDLE * deviation - np.abs(mean))])

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draws at random a value for a conditional parameter (one that depends on another parameter)."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _counts(self, cube: "_Cube", finished: Sequence[FrozenTrial]) -> Counts:
        n = np.array([trial.user_attrs.get(N_JUDGED, self._n_replicates) for trial in finished], dtype=np.float64)
        return Counts(cube.points(finished), np.array([trial.value for trial in finished]) * n, n)


class _Cube:
    """Maps a search space to the unit cube and back. A categorical parameter has one coordinate for each choice."""

    def __init__(self, space: dict[str, BaseDistribution]) -> None:
        self._space = space
        sizes = [len(each.choices) if isinstance(each, CategoricalDistribution) else 1 for each in space.values()]
        self._n, self._places = sum(sizes), np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])

    def points(self, trials: Sequence[FrozenTrial]) -> Array:
        """Returns the points of the given trials in the unit cube, (n_trials, n_coordinates)."""
        rows = [
            [share for name, each in self._space.items() for share in _shares(each, trial.params[name])]
            for trial in trials
        ]
        return np.array(rows, dtype=np.float64).reshape(len(rows), self._n)

    def values(self, point: Array) -> dict[str, Any]:
        """Converts a point of the unit cube, (n_coordinates,), back to parameter values."""
        places = zip(self._space.items(), self._places, strict=True)
        return {name: _value(distribution, point[place]) for (name, distribution), place in places}

    def quasi_random(self, n: int, seed: int) -> Array:
        """Returns the first `n` points of a scrambled Sobol' sequence in the unit cube, (n, n_coordinates)."""
        exponent = max(n - 1, 1).bit_length()
        uniform = qmc.Sobol(len(self._space), scramble=True, rng=seed).random_base2(exponent)[:n]
        points = np.zeros((n, self._n))
        for column, places, distribution in zip(uniform.T, self._places, self._space.values(), strict=True):
            if isinstance(distribution, CategoricalDistribution):
                points[np.arange(n), places[(column * len(places)).astype(int)]] = 1
            else:
                points[:, places[0]] = column
        return points


def _shares(distribution: BaseDistribution, value: Any) -> list[float]:
    if isinstance(distribution, CategoricalDistribution):
        chosen = distribution.to_internal_repr(value)
        return [float(index == chosen) for index in range(len(distribution.choices))]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = _ends(distribution)
    scale = math.log if distribution.log else float
    return [(scale(value) - scale(low)) / (scale(high) - scale(low))]


def _value(distribution: BaseDistribution, shares: Array) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(np.argmax(shares))]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    (low, high), share = _ends(distribution), float(shares[0])
    value = low * (high / low) ** share if distribution.log else low + (high - low) * share
    clipped = min(max(value, distribution.low), distribution.high)
    return round(clipped) if isinstance(distribution, IntDistribution) else clipped


def _ends(distribution: FloatDistribution | IntDistribution) -> tuple[float, float]:
    half = 0.5 if isinstance(distribution, IntDistribution) else 0.0
    return distribution.low - half, distribution.high + half
