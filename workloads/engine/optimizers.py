"""The interface of a pack's optimizer, and its settings."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import fields
from typing import Protocol, Self

import torch
from torch import Tensor

from attnsweep.workloads.update_rules import Hyperparameters

State = dict[str, Tensor]
"""Tensors by name, with trainings as first axis."""
_NUMBERS = [field.name for field in fields(Hyperparameters) if field.type in (int, float, float | None)]


class Evaluate(Protocol):
    def __call__(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        """Each training's loss and gradients at `parameters`, on the batch of `step`. `lanes` (int64) are the places of
        these trainings in the pack; `None` for all."""


class Settings:
    """The hyperparameters of many trainings.

    Attributes:
        values: Those that are numbers, (n_trainings,) float64 by name, NaN where null; and `cosine_from`, the step from
            which the learning rate falls, infinite where it does not.
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
        lanes = [Hyperparameters(learning_rate=rate) for rate in learning_rate.tolist()]
        return cls(lanes, n_steps, learning_rate.dtype, learning_rate.device)

    def column(self, name: str) -> Tensor:
        """A number among `values`, (n_trainings, 1), on the device."""
        if name not in self._columns:
            # Kept, so that it is copied once: the host waits for the device at every copy.
            self._columns[name] = self.values[name].to(self.device, self.dtype)[:, None]
        return self._columns[name]

    def select(self, lanes: Tensor) -> Self:
        selected, positions = copy(self), lanes.cpu()
        selected.values = {name: values[positions] for name, values in self.values.items()}
        selected._columns = {name: values[lanes] for name, values in self._columns.items()}
        return selected


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


class Optimizer(ABC):
    """Implementers: a lane's updates must depend on its values alone, to the last bit where kernels allow it. An
    optimizer decides how often a step evaluates the loss, and at which points.

    Attributes:
        steps: Updates taken by each training; constant once it has ended.
        is_finite: For each training, false from the first step whose loss was not finite; `steps` is then that step.
        keeps_width: Whether the loss is evaluated for all trainings, also for those whose values are not needed.
    """

    keeps_width = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.steps = torch.zeros(len(settings.values["learning_rate"]), dtype=torch.int64, device=settings.device)
        self.is_finite = torch.ones_like(self.steps, dtype=torch.bool)

    @property
    def is_running(self) -> Tensor:
        """False for each training that a non-finite loss or a tolerance has ended."""
        return self.is_finite

    @abstractmethod
    def advance(self, parameters: State, evaluate: Evaluate, stop: int, most_evaluations: int) -> bool:
        """Trains until step `stop`, or for `most_evaluations`. Returns whether all running trainings have reached it.

        `parameters` are updated in place. Once all have reached `stop`, they, `is_finite` and `is_running` are those of
        that step; before, they are undefined.
        """

    def batch_step(self, step: int) -> int:
        """Which step's batch the loss at `step` is of: its own, unless the optimizer always uses the same."""
        return step

    def descended(self) -> dict[str, Tensor]:
        """`train_loss` and `train_grad_norm` at the present step, on the batch of `batch_step`, if computed."""
        return {}

    def observe(self, loss: Tensor) -> None:
        """Ends trainings whose `loss` at the present step is not finite."""
        self.is_finite.logical_and_(torch.isfinite(loss))

    def state_dict(self) -> Mapping[str, Tensor]:
        """All that steps change, between two calls of `advance`. No copy: the next call changes it."""
        return {"steps": self.steps, "is_finite": self.is_finite}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replaces the state by that of another optimizer with equal settings, without copying it."""
        self.steps, self.is_finite = state["steps"], state["is_finite"]

    def select(self, lanes: Tensor) -> None:
        self.settings = self.settings.select(lanes)
        self.steps = self.steps[lanes]
        self.is_finite = self.is_finite[lanes]
