"""Optuna's CMA-ES sampler, with its state stored as JSON."""

import json
from typing import Any

import numpy as np
from cmaes import CMA
from optuna.samplers import CmaEsSampler
from optuna.trial import FrozenTrial

_KIND = "__array__"


class JsonCmaEsSampler(CmaEsSampler):
    """Draws the same values as Optuna's sampler.

    Optuna's sampler stores its optimizer as a pickle in a trial's attributes and loads it for the next trial, so
    anybody who can write to the study could run code.
    """

    _optimizer: CMA

    @property
    def _attr_key_optimizer(self) -> str:
        return f"{self._attr_prefix}state"

    def _init_optimizer(self, *arguments: Any, **named: Any) -> CMA:
        self._optimizer = super()._init_optimizer(*arguments, **named)
        return self._optimizer

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> CMA | None:
        for trial in reversed(completed_trials):
            kept = {
                name: part for name, part in trial.system_attrs.items() if name.startswith(self._attr_key_optimizer)
            }
            if kept:
                self._optimizer = CMA.__new__(CMA)
                self._optimizer.__setstate__(json.loads(self._concat_optimizer_attrs(kept), object_hook=_read))
                return self._optimizer
        return None

    def _split_optimizer_str(self, optimizer_str: str) -> dict[str, str]:
        """The optimizer as attributes. Optuna passes its pickle, which is not stored."""
        del optimizer_str
        return super()._split_optimizer_str(json.dumps(self._optimizer.__getstate__(), default=_written))


def _written(value: Any) -> Any:
    return {_KIND: value.tolist()} if isinstance(value, np.ndarray) else value.item()


def _read(entry: dict[str, Any]) -> Any:
    return np.array(entry[_KIND]) if _KIND in entry else entry
