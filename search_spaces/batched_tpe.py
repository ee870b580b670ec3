"""Optuna's TPE sampler for trials that are drawn in batches. TPE's model of the objective is fitted only once per
batch.

Names of arrays end with letters for their axes: P point, K kernel, F feature of a point, V value of a categorical
parameter.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState

from attnsweep.search_spaces.optuna_internals import kernels_of, log_gauss_mass, split_trials

_STATES = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)


class BatchedTPESampler(TPESampler):
    """Draws trials like Optuna's TPE sampler with `constant_liar`, but fits its model only at the first trial of a
    batch.

    Fitting the model takes Optuna longer with every trial. All trials of a batch are drawn before any of them has
    ended, so a new fit would only add the points that were drawn for the batch before. As with Optuna's
    `constant_liar`, these points count as bad trials: their density is mixed into the density of the worse trials,
    weighted by their number.
    """

    def __init__(self) -> None:
        super().__init__(constant_liar=True)
        self._models: dict[tuple[str, ...], _Model] = {}
        self._joint_space: dict[str, BaseDistribution] = {}

    def begin(self, seed: int, *, new_batch: bool = False) -> None:
        """Seeds the draws of the next trial. `new_batch` tells whether this trial is the first of a batch."""
        if new_batch:
            self._models, self._joint_space = {}, {}
        self._rng.rng.seed(seed)
        if not self._models:
            # The random sampler draws only until the first model is fitted. After that it is not seeded any more,
            # because seeding takes as long as a draw.
            self._random_sampler._rng.rng.seed(seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Returns the parameters that are drawn together. They are determined once for each batch, because Optuna's
        method reads all trials, which is slow.
        """
        self._joint_space = self._joint_space or super().infer_relative_search_space(study, trial)
        return self._joint_space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draws the values of the parameters in `search_space`. Reads past trials only if no model has been fitted for
        the current batch."""
        is_fitted = tuple(search_space) in self._models
        return (self._sample if is_fitted else super().sample_relative)(study, trial, search_space)

    def _sample(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        names = tuple(search_space)
        if names not in self._models:
            self._models[names] = self._fit(study, trial, search_space)
        model = self._models[names]
        candidates = model.better.sample(self._rng.rng, self._n_ei_candidates)
        chosen = self._compare(candidates, model.better.log_pdf(candidates) - model.worse_log_pdf(candidates))
        model.add(chosen)
        return {name: distribution.to_external_repr(chosen[name]) for name, distribution in search_space.items()}

    def _fit(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> "_Model":
        trials = [other for other in study.get_trials(deepcopy=False, states=_STATES) if other.number != trial.number]
        n_finished = sum(other.state != TrialState.RUNNING for other in trials)
        better, worse = split_trials(study, trials, _n_better(n_finished, len(study.directions)))
        return _Model(
            self._build_parzen_estimator(study, search_space, better, handle_below=True),
            self._build_parzen_estimator(study, search_space, worse, handle_below=False),
            len(worse) + 1,
            lambda points: self._parzen_estimator_cls(points, search_space, self._parzen_estimator_parameters),
        )


def _n_better(n_finished: int, n_objectives: int) -> int:
    """Returns how many of the finished trials TPE counts as good, by Optuna's default rule. TPE draws near the good
    ones."""
    tenth = math.ceil(0.1 * n_finished)
    return min(tenth, 25) if n_objectives == 1 else tenth


class _Model:
    """The two densities that TPE compares: that of the better trials and that of the worse trials. Points that were
    already drawn for the current batch count as worse trials.

    Args:
        better, worse: The Parzen estimators that Optuna fits to the better and to the worse trials.
        n_worse: The number of kernels in `worse`, including the kernel of the prior.
        estimate: Fits a Parzen estimator to points.
    """

    def __init__(
        self, better: Any, worse: Any, n_worse: int, estimate: Callable[[dict[str, NDArray[Any]]], Any]
    ) -> None:
        self.better = Mixture(better)
        self._worse, self._n_worse, self._estimate = Mixture(worse), n_worse, estimate
        self._chosen: list[dict[str, Any]] = []

    def add(self, chosen: dict[str, Any]) -> None:
        """Adds a point that was drawn for the current batch to the points whose density counts as that of the worse
        trials.
        """
        self._chosen.append(chosen)

    def worse_log_pdf(self, candidates: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Returns the log density of the worse trials at the given candidates.

        Points that were already drawn for the current batch count as worse trials, so that further points keep away
        from them.
        """
        trials_log_pdf = self._worse.log_pdf(candidates)
        if not self._chosen:
            return trials_log_pdf
        n_chosen = len(self._chosen)
        chosen = {name: np.array([point[name] for point in self._chosen]) for name in candidates}
        batch_log_pdf = Mixture(self._estimate(chosen)).log_pdf(candidates)
        share = n_chosen / (n_chosen + self._n_worse)
        joint: NDArray[np.float64] = np.logaddexp(np.log1p(-share) + trials_log_pdf, np.log(share) + batch_log_pdf)
        return joint


_MOST_VALUES = 256
"""The largest number of values of an integer parameter for which the kernels' log densities at each value are
cached."""

_FAINTEST = -700.0
"""A lower bound on a kernel's log density, relative to the largest of all kernels. Below it, NumPy's exp would
underflow and take six times as long."""

_Floats: TypeAlias = NDArray[np.float64]


class Mixture:
    """Computes the densities and samples of Optuna's Parzen estimator (a mixture of kernels), up to rounding, but
    faster.

    A kernel is a product of truncated normal distributions, one per parameter, with mean m and standard deviation s.
    The log density is quadratic in the parameter x, so one matrix product computes it for all kernels and points: (1,
    x, x^2) times (c, m/s^2, -1/2s^2). The constant c contains the probability between the parameter's bounds. It is
    computed once here, but by Optuna for each set of points.
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
            # Coordinates are measured from the middle of the parameter's range. Measured from 0 they might be large,
            # and differences of their squares would lose digits.
            middle = (low + high) / 2
            self._scale_of[name] = _scale(middle, is_log=kernel.is_log)
            mu_K, precision_K = kernel.mu - middle, kernel.sigma**-2.0
            constant_K -= mu_K**2 * precision_K / 2 + np.log(kernel.sigma) + math.log(2 * math.pi) / 2
            factors_FK += [mu_K * precision_K, -precision_K / 2]
        self._factors_FK = np.array([constant_K, *factors_FK])

    def log_pdf(self, points: dict[str, NDArray[Any]]) -> _Floats:
        """Returns the log density of the mixture of kernels at each point, (n_points,).

        Args:
            points: The values (n_points,) of each parameter, in Optuna's internal form.
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
        """Draws `n_points` points. Returns the values (n_points,) of each parameter by name, in Optuna's internal
        form."""
        kernel_P = generator.choice(len(self._weights), p=self._weights, size=n_points)
        drawn = {
            name: _choice(self._kernels[name].weights[kernel_P], generator.rand(n_points)) for name in self._categorical
        }
        numeric = [name for name in self._kernels if name not in drawn]
        for name, quantile_P in zip(numeric, generator.uniform(size=(len(numeric), n_points)), strict=True):
            drawn[name] = self._number(name, kernel_P, quantile_P)
        return {name: drawn[name] for name in self._kernels}

    def _number(self, name: str, kernel_P: NDArray[np.int64], quantile_P: _Floats) -> _Floats:
        """Computes a value of a numeric parameter for each of several points. It is a quantile of the distribution
        (kernel) that was chosen for the point, one of those from whose mixture TPE samples.

        A closed formula gives the quantile. Optuna instead inverts each cumulative distribution by Newton's method.
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
    # One choice per row is drawn: the number of cumulated weights that are below the row's quantile. The last of them
    # is always 1 up to rounding, so it need not be compared.
    chosen_P: _Floats = np.sum(cumulated_PV[:, :-1] < quantile_P[:, None], axis=1).astype(np.float64)
    return chosen_P


def _scale(middle: float, *, is_log: bool) -> Callable[[_Floats], _Floats]:
    return lambda x: (np.log(x) if is_log else x) - middle


def _choice_column(logs_VK: _Floats) -> Callable[[float], _Floats]:
    return lambda value: logs_VK[int(value)]


def _integer_column(kernels: Any) -> Callable[[float], _Floats]:
    """Returns a function of an integer value. The function returns how probable each distribution (kernel) of TPE's
    mixture makes the interval of width `step` around the value, as log probabilities (n_kernels,)."""
    scale = math.log if kernels.is_log else float
    half = kernels.step / 2

    def column(value: float) -> _Floats:
        left, right = scale(value - half), scale(value + half)
        mass: _Floats = log_gauss_mass((left - kernels.mu) / kernels.sigma, (right - kernels.mu) / kernels.sigma)
        return mass

    return column
