"""Optuna's TPE sampler for trials that are drawn in batches: the model is fitted once per batch."""

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
    """Draws batches of trials: the first like Optuna's TPE with `constant_liar`, the others from the first one's model.

    Fitting the model takes Optuna longer with every trial. All trials of a batch are drawn before any of them has
    ended, so a new fit would add nothing but the batch's own points. These are added to the model as the constant liar
    would add them, as bad trials: their density is mixed into the density of the worse trials, weighted by their
    number.
    """

    def __init__(self) -> None:
        super().__init__(constant_liar=True)
        self._models: dict[tuple[str, ...], _Model] = {}
        self._joint_space: dict[str, BaseDistribution] = {}

    def begin(self, seed: int, *, new_batch: bool = False) -> None:
        """Seeds the draws of the next trial; `new_batch` says whether this trial is the first of a batch."""
        if new_batch:
            self._models, self._joint_space = {}, {}
        self._rng.rng.seed(seed)
        if not self._models:
            # The random sampler is used only before the first model exists, and seeding it takes as long as a draw, so
            # it is not seeded later.
            self._random_sampler._rng.rng.seed(seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Returns the parameters that are drawn together. Cached for a batch, because Optuna searches all trials."""
        self._joint_space = self._joint_space or super().infer_relative_search_space(study, trial)
        return self._joint_space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draws the values of `search_space`. If a model is fitted, Optuna's search of all trials is skipped."""
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
    """Returns how many trials TPE counts as the better ones, by Optuna's default rule."""
    tenth = math.ceil(0.1 * n_finished)
    return min(tenth, 25) if n_objectives == 1 else tenth


class _Model:
    """The densities of TPE's better and worse trials. The batch's own points count as worse trials.

    Args:
        better, worse: The Parzen estimators that Optuna fits to the better and to the worse trials.
        n_worse: The number of kernels in `worse`, its prior included.
        estimate: Fits a Parzen estimator to points.
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
        """Adds a point of the batch to the trials that count as worse."""
        self._chosen.append(chosen)

    def worse_log_pdf(self, candidates: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Returns the log density, at the candidates, of the worse trials together with the batch's points."""
        trials_log_pdf = self._worse.log_pdf(candidates)
        if not self._chosen:
            return trials_log_pdf
        n_chosen = len(self._chosen)
        chosen = {name: np.array([point[name] for point in self._chosen]) for name in candidates}
        batch_log_pdf = Mixture(self._estimate(chosen)).log_pdf(candidates)
        share = n_chosen / (n_chosen + self._n_worse)
        joint: NDArray[np.float64] = np.logaddexp(np.log1p(-share) + trials_log_pdf, np.log(share) + batch_log_pdf)
        return joint
