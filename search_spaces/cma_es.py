"""Optuna's CMA-ES sampler, but with its state stored as JSON instead of a pickle."""

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cmaes import CMA
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import CmaEsSampler
from optuna.trial import FrozenTrial, create_trial

_KIND = "__array__"
_STATE = "cma:state"
_MOST_CHARACTERS = 2045
"""The longest text that every database which Optuna supports accepts as an attribute of a trial."""


class JsonCmaEsSampler(CmaEsSampler):
    """Draws the same values as Optuna's CMA-ES sampler, but stores the optimizer's state as JSON instead of a pickle.

    Optuna's sampler stores its optimizer as a pickle in a trial's attributes and unpickles it for the next trial.
    Anybody who can write to the study could so run code here.
    """

    _optimizer: CMA

    def _init_optimizer(self, *arguments: Any, **named: Any) -> CMA:
        self._optimizer = super()._init_optimizer(*arguments, **named)
        return self._optimizer

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> CMA | None:
        for trial in reversed(completed_trials):
            n_parts = sum(name.startswith(_STATE) for name in trial.system_attrs)
            if n_parts:
                text = "".join(trial.system_attrs[f"{_STATE}:{part}"] for part in range(n_parts))
                self._optimizer = CMA.__new__(CMA)
                self._optimizer.__setstate__(json.loads(text, object_hook=_from_json))
                return self._optimizer
        return None

    def _split_optimizer_str(self, optimizer_str: str) -> dict[str, str]:
        """Returns the state of the CMA-ES optimizer as attributes of a trial: JSON text, cut into pieces that every
        database accepts.

        Optuna passes its own pickle of the state as the argument. It is ignored: the state is read from the optimizer.
        """
        del optimizer_str
        text = json.dumps(self._optimizer.__getstate__(), default=_to_json)
        begins = range(0, len(text), _MOST_CHARACTERS)
        return {f"{_STATE}:{part}": text[begin : begin + _MOST_CHARACTERS] for part, begin in enumerate(begins)}


def warm_cma_es(seed: int, space: Mapping[str, BaseDistribution], earlier: Sequence[FrozenTrial]) -> CmaEsSampler:
    """Returns a CMA-ES sampler that starts at the best trial of earlier sweeps, if there are any.

    Args:
        seed: The seed of the sampler's draws.
        space: The unconditional parameters; the sampler draws the numeric ones.
        earlier: Trials of earlier sweeps.
    """
    numbers: dict[str, BaseDistribution] = {
        name: distribution
        for name, distribution in space.items()
        if isinstance(distribution, FloatDistribution | IntDistribution) and not distribution.single()
    }
    source = [
        create_trial(value=trial.value, params={name: trial.params[name] for name in numbers}, distributions=numbers)
        for trial in earlier
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return JsonCmaEsSampler(seed=seed, warn_independent_sampling=False, source_trials=source or None)


def _to_json(value: Any) -> Any:
    return {_KIND: value.tolist()} if isinstance(value, np.ndarray) else value.item()


def _from_json(entry: dict[str, Any]) -> Any:
    return np.array(entry[_KIND]) if _KIND in entry else entry
