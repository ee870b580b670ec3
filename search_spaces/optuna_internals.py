"""All private names of Optuna that attnsweep uses. They are checked at import, since another version may lack them."""

from importlib.metadata import version
from typing import Any

import optuna
from optuna.storages import BaseStorage

from attnsweep.workloads.errors import UserError

TESTED = "5.0"

try:
    from optuna._transform import _SearchSpaceTransform as SearchSpaceTransform
    from optuna.samplers._tpe._truncnorm import _log_gauss_mass as log_gauss_mass
    from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator as ParzenEstimator
    from optuna.samplers._tpe.probability_distributions import _BatchedCategoricalDistributions as CategoricalKernels
    from optuna.samplers._tpe.probability_distributions import _MixtureOfProductDistribution
    from optuna.samplers._tpe.sampler import _split_trials as split_trials
    from optuna.samplers._tpe.sampler import default_gamma
    from optuna.storages.journal._storage import JournalOperation

    for _name in ("_attr_key_optimizer", "_init_optimizer", "_restore_optimizer", "_split_optimizer_str"):
        # What `JsonCmaEsSampler` overrides.
        getattr(optuna.samplers.CmaEsSampler, _name)
    for _name in ("weights", "distributions"):
        # What `mixture_of` reads.
        getattr(_MixtureOfProductDistribution, _name)
    for _name in ("_sample", "_build_parzen_estimator", "_compare"):
        # What `BatchedTPESampler` overrides or calls.
        getattr(optuna.samplers.TPESampler, _name)
except (ImportError, AttributeError) as error:
    raise UserError(
        "optuna",
        given=f"version {version('optuna')}",
        expected=f"version {TESTED}, with which attnsweep was tested ({error})",
        fix=f"pip install 'optuna=={TESTED}.*'",
    ) from error

__all__ = [
    "CategoricalKernels",
    "JournalOperation",
    "ParzenEstimator",
    "SearchSpaceTransform",
    "default_gamma",
    "log_gauss_mass",
    "mixture_of",
    "new_trial",
    "split_trials",
    "storage_of",
]


def storage_of(study: optuna.Study) -> tuple[BaseStorage, int]:
    """The storage of a study, and the study's id there."""
    return study._storage, study._study_id


def mixture_of(estimator: ParzenEstimator) -> tuple[Any, dict[str, Any]]:
    """The weights of an estimator's kernels, and by parameter what the kernels are there."""
    mixture = estimator._mixture_distribution
    return mixture.weights, dict(zip(estimator._search_space, mixture.distributions, strict=True))


def new_trial(study: optuna.Study) -> optuna.Trial:
    """A new trial, as `study.ask` makes it.

    `study.ask` first looks through all trials for one that somebody has enqueued. Nobody enqueues trials of a sweep.
    """
    study._thread_local.cached_all_trials = None
    storage, study_id = storage_of(study)
    return optuna.Trial(study, storage.create_new_trial(study_id))
