"""Optuna's CMA-ES sampler, with its state stored as JSON."""

import json
from typing import Any

import numpy as np
from cmaes import CMA
from optuna.samplers import CmaEsSampler
from optuna.trial import FrozenTrial

_KIND = "__array__"
_STATE = "cma:state"
_MOST_CHARACTERS = 2045
"""Of an attribute of a trial: what Optuna's databases hold."""


class JsonCmaEsSampler(CmaEsSampler):
    """Draws the same values as Optuna's sampler.

    Optuna's sampler stores its optimizer as a pickle in a trial's attributes and loads it for the next trial, so
    anybody who can write to the study could run code.
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
                self._optimizer.__setstate__(json.loads(text, object_hook=_read))
                return self._optimizer
        return None

    def _split_optimizer_str(self, optimizer_str: str) -> dict[str, str]:
        """The optimizer as attributes. Optuna passes its pickle, which is not stored."""
        del optimizer_str
        text = json.dumps(self._optimizer.__getstate__(), default=_written)
        begins = range(0, len(text), _MOST_CHARACTERS)
        return {f"{_STATE}:{part}": text[begin : begin + _MOST_CHARACTERS] for part, begin in enumerate(begins)}


def _written(value: Any) -> Any:
    return {_KIND: value.tolist()} if isinstance(value, np.ndarray) else value.item()


def _read(entry: dict[str, Any]) -> Any:
    return np.array(entry[_KIND]) if _KIND in entry else entry
