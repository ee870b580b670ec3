"""The contract of a pack's optimizer, which trains all lanes independently up to a step. Axes: L lane, K lane kept."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import fields
from typing import Protocol, Self

import torch
from torch import Tensor

from attnsweep.workloads.update_rules import Hyperparameters

State = dict[str, Tensor]
"""Tensors (L, ...) by parameter name."""
_NUMBERS = [field.name for field in fields(Hyperparameters) if field.type in (int, float, float | None)]


class Evaluate(Protocol):
    """The signature of functions that compute a pack's training loss and gradient."""

    def __call__(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        """Returns loss (K,) and gradients (K, ...) by name at `parameters` (K, ...), on the batch of `step`.

        Args:
            lanes: (K,) int64, the positions of the lanes to evaluate; all by default.
        """


class Settings:
    """The hyperparameters of L lanes, as `Hyperparameters` declares them.

    Attributes:
        values: Arrays (L,) float64 by name, in the host's memory: all numbers, NaN where null; and `cosine_from`, the
            step from which the learning rate falls, infinite where it is constant.
    """

    def __init__(
        self, lanes: Sequence[Hyperparameters], n_steps: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> None:
        self.values: State = {
            name: torch.tensor([_number(getattr(lane, name)) for lane in lanes], dtype=torch.float64)
            for name in _NUMBERS
        }
        falls = torch.tensor([lane.learning_rate_schedule == "cosine" for lane in lanes])
        self.values["cosine_from"] = self.values["warmup_steps"].masked_fill(~falls, torch.inf)
        self.n_steps, self.dtype, self.device = n_steps, dtype, device
        self._columns: State = {}

    @classmethod
    def plain(cls, learning_rate: Tensor, n_steps: int) -> Self:
        """Makes settings with the given learning rates (L,), and the defaults of all other hyperparameters."""
        lanes = [Hyperparameters(learning_rate=rate) for rate in learning_rate.tolist()]
        return cls(lanes, n_steps, learning_rate.dtype, learning_rate.device)

    def column(self, name: str) -> Tensor:
        """Returns the values (L, 1) of a numeric hyperparameter on the device."""
        if name not in self._columns:
            # `_columns` is a cache, because every copy to the device makes the host wait for the device.
            self._columns[name] = self.values[name].to(self.device, self.dtype)[:, None]
        return self._columns[name]

    def select(self, lanes: Tensor) -> Self:
        """Selects the settings of the lanes at positions (K,) int64."""
        selected, positions = copy(self), lanes.cpu()
        selected.values = {name: values[positions] for name, values in self.values.items()}
        selected._columns = {name: values[lanes] for name, values in self._columns.items()}
        return selected


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


class Optimizer(ABC):
    """The optimizer of all lanes of a pack together.

    Implementers: the updates of a lane must depend on that lane's values alone, to the last bit where kernels allow it.
    An optimizer decides how often a step evaluates the loss, and at which points.

    Attributes:
        settings: The settings of the lanes that have not been dropped by `select`.
        steps: (L,) int64, the updates taken; constant once a lane has ended.
        is_finite: (L,) bool, false from the first step whose loss was not finite; `steps` is then that step.
        keeps_width: Whether the loss is evaluated for all lanes, also for those whose values are not needed.
    """

    keeps_width = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.steps = torch.zeros(len(settings.values["learning_rate"]), dtype=torch.int64, device=settings.device)
        self.is_finite = torch.ones_like(self.steps, dtype=torch.bool)

    @property
    def is_running(self) -> Tensor:
        """Returns (L,) bool, false for lanes that have ended because of a non-finite loss or a tolerance."""
        return self.is_finite

    @abstractmethod
    def advance(self, parameters: State, evaluate: Evaluate, stops: Sequence[int], most_evaluations: int) -> bool:
        """Trains all running lanes up to step `stops[0]`. Returns whether all have reached it.

        Args:
            parameters: Updated in place. Once step `stops[0]` is reached, they and `steps`, `is_finite` and
                `is_running` are those of that step; before, they are undefined.
            stops: The step to reach, and the next few steps that later calls will request. A lane that reaches
                `stops[0]` early need not wait for the others: it may go on to the last of them.
            most_evaluations: The number of evaluations after which to return even if the step is not reached.
        """

    def batch_step(self, step: int) -> int:
        """Returns the step from whose batch the loss at `step` is computed."""
        return step

    def descended(self) -> dict[str, Tensor]:
        """Returns `train_loss` (L,) and `train_grad_norm` (L,) at the present step; empty if they were not computed.

        They are values on the batch of `batch_step`.
        """
        return {}

    def observe(self, loss: Tensor) -> None:
        """Ends the lanes whose loss (L,) at the present step is not finite."""
        self.is_finite.logical_and_(torch.isfinite(loss))

    def state_dict(self) -> Mapping[str, Tensor]:
        """Returns by name all state that steps change. May be called between any two calls of `advance`.

        It is not a copy: the next `advance` changes it in place.
        """
        return {"steps": self.steps, "is_finite": self.is_finite}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Loads the state of an optimizer with equal settings, by reference."""
        self.steps, self.is_finite = state["steps"], state["is_finite"]

    def select(self, lanes: Tensor) -> None:
        """Drops all lanes except those at positions (K,) int64."""
        self.settings = self.settings.select(lanes)
        self.steps = self.steps[lanes]
        self.is_finite = self.is_finite[lanes]
