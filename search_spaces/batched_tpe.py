"""Optuna's TPE for trials that are asked for in batches: one model for a batch."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState

from attnsweep.search_spaces.mixture import Mixture
from attnsweep.search_spaces.optuna_internals import split_trials

_STATES = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)


class BatchedTPESampler(TPESampler):
    """Draws the first trial of a batch as Optuna's TPE with `constant_liar` does; the others from the same model.

    To fit the model takes Optuna longer with every trial. A batch is asked for before any of its trials has ended, so a
    new fit would learn nothing but the batch's own points. Those are added to the model as the constant liar has them,
    as points of the worse kind: a density of their own is mixed into that of the worse trials, by their number.
    """

    def __init__(self) -> None:
        super().__init__(constant_liar=True)
        self._models: dict[tuple[str, ...], _Model] = {}
        self._joint_space: dict[str, BaseDistribution] = {}

    def begin(self, seed: int, *, new_batch: bool = False) -> None:
        """Seeds the draws of the next trial, which may be the first of a batch."""
        if new_batch:
            self._models, self._joint_space = {}, {}
        self._rng.rng.seed(seed)
        if not self._models:
            # For trials that come before any model. To seed one takes as long as a draw.
            self._random_sampler._rng.rng.seed(seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that are drawn together. Optuna looks for them through all trials since the last batch."""
        self._joint_space = self._joint_space or super().infer_relative_search_space(study, trial)
        return self._joint_space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draws them. Optuna looks through all trials first, whether there are enough for a model."""
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
        return {name: each.to_external_repr(chosen[name]) for name, each in search_space.items()}

    def _fit(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> "_Model":
        trials = [each for each in study.get_trials(deepcopy=False, states=_STATES) if each.number != trial.number]
        n_finished = sum(each.state != TrialState.RUNNING for each in trials)
        better, worse = split_trials(study, trials, _n_better(n_finished, len(study.directions)))
        return _Model(
            self._build_parzen_estimator(study, search_space, better, handle_below=True),
            self._build_parzen_estimator(study, search_space, worse, handle_below=False),
            len(worse) + 1,
            lambda points: self._parzen_estimator_cls(points, search_space, self._parzen_estimator_parameters),
        )


def _n_better(n_finished: int, n_objectives: int) -> int:
    """How many trials TPE takes for the better ones; as Optuna by default."""
    tenth = math.ceil(0.1 * n_finished)
    return min(tenth, 25) if n_objectives == 1 else tenth


class _Model:
    """The densities of the better and of the worse trials, and of the batch's own points.

    Args:
        better, worse: As Optuna fits them.
        n_worse: Kernels in `worse`, its prior included.
        estimate: Makes the density of points.
    """

    def __init__(
        self,
        better: Any,
        worse: Any,
        n_worse: int,
        estimate: Callable[[dict[str, NDArray[Any]]], Any],
    ) -> None:
        self.better = Mixture(better)
        self._worse, self._n_worse, self._estimate = Mixture(worse), n_worse, estimate
        self._chosen: list[dict[str, Any]] = []

    def add(self, chosen: dict[str, Any]) -> None:
        """Takes a point of the batch for a worse one."""
        self._chosen.append(chosen)

    def worse_log_pdf(self, candidates: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        """The density of the worse trials and of the batch at these points."""
        of_trials = self._worse.log_pdf(candidates)
        if not self._chosen:
            return of_trials
        n_chosen = len(self._chosen)
        chosen = {name: np.array([each[name] for each in self._chosen]) for name in candidates}
        of_batch = Mixture(self._estimate(chosen)).log_pdf(candidates)
        share = n_chosen / (n_chosen + self._n_worse)
        joint: NDArray[np.float64] = np.logaddexp(np.log1p(-share) + of_trials, np.log(share) + of_batch)
        return joint
