"""An Optuna sampler that searches the boundary at which a sweep's objective, a rate, is one half.

Axes: T trial, D coordinate of the unit cube.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState
from scipy.stats import qmc

from attnsweep.search_spaces.measured import N_JUDGED
from attnsweep.search_spaces.surface import Floats, SmoothLogit, fit_logit, likely_kernel

_STRADDLE = 1.96
_N_CANDIDATES = 1024


class BoundarySampler(BaseSampler):
    """Draws trials whose rate may be above or below one half: of quasi-random candidates the one with the largest
    `1.96 * deviation - |mean logit|` (the "straddle").

    The surface is that of finished trials over the unit cube, choices as one-hot vectors. Running trials count as if
    they had ended as expected, so that a batch spreads out. The first `n_startup` trials are quasi-random, by
    `layout_seed`; conditional parameters are random.

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
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        cube = _Cube(search_space)
        past = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING))
        others = [each for each in past if each.number != trial.number and search_space.keys() <= each.params.keys()]
        finished = [other for other in others if other.state == TrialState.COMPLETE]
        if len(finished) < self._n_startup:
            return cube.values(cube.quasi_random(trial.number + 1, self._layout_seed)[-1])
        n = np.array([other.user_attrs.get(N_JUDGED, self._n_replicates) for other in finished], dtype=np.float64)
        share = np.array([other.value for other in finished], dtype=np.float64)
        surface = fit_rate(cube.points(finished), n, share * n)
        pending = [other for other in others if other.state == TrialState.RUNNING]
        surface = surface.believing(2 * cube.points(pending) - 1, self._n_replicates)
        candidates = cube.quasi_random(_N_CANDIDATES, self._seed)
        mean, deviation = surface.at(2 * candidates - 1)
        return cube.values(candidates[np.argmax(_STRADDLE * deviation - np.abs(mean))])

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)


def fit_rate(points_TD: Floats, n_T: Floats, k_T: Floats) -> SmoothLogit:
    """Over -1..1, from points of the unit cube, where `k_T` of `n_T` trainings have the property."""
    return _fitted(points_TD.shape, *(array.tobytes() for array in (points_TD, n_T, k_T)))


@functools.lru_cache(maxsize=4)
def _fitted(shape: tuple[int, int], points: bytes, n: bytes, k: bytes) -> SmoothLogit:
    x_TD, n_T, k_T = 2 * np.frombuffer(points).reshape(shape) - 1, np.frombuffer(n), np.frombuffer(k)
    # Half a training of each kind is added, so that there is a surface also where all ended alike.
    return fit_logit(x_TD, n_T + 1, k_T + 0.5, **likely_kernel(x_TD, n_T, k_T))


class _Cube:
    """Maps a search space to the unit cube and back. A categorical parameter has one coordinate for each choice."""

    def __init__(self, space: dict[str, BaseDistribution]) -> None:
        self._space = space
        sizes = [len(each.choices) if isinstance(each, CategoricalDistribution) else 1 for each in space.values()]
        self._n_coordinates, self._coordinates = sum(sizes), np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])

    def points(self, trials: Sequence[FrozenTrial]) -> Floats:
        rows = [
            [share for name, each in self._space.items() for share in _shares(each, trial.params[name])]
            for trial in trials
        ]
        return np.array(rows, dtype=np.float64).reshape(len(rows), self._n_coordinates)

    def values(self, point: Floats) -> dict[str, Any]:
        coordinates = zip(self._space.items(), self._coordinates, strict=True)
        return {name: _value(distribution, point[own]) for (name, distribution), own in coordinates}

    def quasi_random(self, n: int, seed: int) -> Floats:
        """(n, D), of a scrambled Sobol' sequence."""
        exponent = max(n - 1, 1).bit_length()
        uniform = qmc.Sobol(len(self._space), scramble=True, rng=seed).random_base2(exponent)[:n]
        points = np.zeros((n, self._n_coordinates))
        for column, own, distribution in zip(uniform.T, self._coordinates, self._space.values(), strict=True):
            if isinstance(distribution, CategoricalDistribution):
                points[np.arange(n), own[(column * len(own)).astype(int)]] = 1
            else:
                points[:, own[0]] = column
        return points


def _shares(distribution: BaseDistribution, value: Any) -> list[float]:
    if isinstance(distribution, CategoricalDistribution):
        chosen = distribution.to_internal_repr(value)
        return [float(index == chosen) for index in range(len(distribution.choices))]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = _ends(distribution)
    scale = math.log if distribution.log else float
    return [(scale(value) - scale(low)) / (scale(high) - scale(low))]


def _value(distribution: BaseDistribution, shares: Floats) -> Any:
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
