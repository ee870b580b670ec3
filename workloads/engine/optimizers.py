"""The contract of a pack's optimizer: it trains all lanes up to a step, each by itself. Axes: L lane, K lane kept."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import fields
from typing import Protocol, Self

import torch
from torch import Tensor

from attnsweep.workloads.update_rules import Hyperparameters

State = dict[str, Tensor]
"""Tensors by parameter name, each (L, ...)."""
_NUMBERS = [each.name for each in fields(Hyperparameters) if each.type in (int, float, float | None)]


class Evaluate(Protocol):
    """The pack's objective."""

    def __call__(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        """Loss (K,) and gradients (K, ...) of lanes at `parameters` (K, ...), on the batch of `step`.

        Args:
            lanes: (K,) int64, the positions of the lanes evaluated; all by default.
        """


class Settings:
    """The hyperparameters of L lanes, as `Hyperparameters` declares them.

    Attributes:
        values: (L,) float64 by name, in the host's memory: numbers, NaN where null; and `cosine_from`, the step from
            which the learning rate falls, infinite where it stays.
        n_steps: The steps of the whole training.
        dtype, device: Of what an optimizer reads.
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
        """Those of lanes with these learning rates (L,), and the defaults of all else."""
        lanes = [Hyperparameters(learning_rate=rate) for rate in learning_rate.tolist()]
        return cls(lanes, n_steps, learning_rate.dtype, learning_rate.device)

    def column(self, name: str) -> Tensor:
        """(L, 1) the values of a number."""
        if name not in self._columns:
            # Kept, because copying them to a device makes the host wait for it.
            self._columns[name] = self.values[name].to(self.device, self.dtype)[:, None]
        return self._columns[name]

    def select(self, lanes: Tensor) -> Self:
        """The settings of the lanes at these positions, (K,) int64."""
        selected, positions = copy(self), lanes.cpu()
        selected.values = {name: values[positions] for name, values in self.values.items()}
        selected._columns = {name: values[lanes] for name, values in self._columns.items()}
        return selected


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


class Optimizer(ABC):
    """One update rule for all lanes of a pack.

    Implementers: what happens to a lane depends on that lane's values alone, to the last bit where kernels allow it.
    How often a step evaluates the objective, and at which points, is up to the rule.

    Attributes:
        settings: Those of the lanes that are still in the batch.
        steps: (L,) int64 updates taken; constant once a lane has ended.
        is_finite: (L,) bool, false from the first step whose loss was not finite; `steps` is then that step.
        keeps_width: Whether the objective is evaluated for all lanes, also for those whose values are not needed.
    """

    keeps_width = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.steps = torch.zeros(len(settings.values["learning_rate"]), dtype=torch.int64, device=settings.device)
        self.is_finite = torch.ones_like(self.steps, dtype=torch.bool)

    @property
    def is_running(self) -> Tensor:
        """(L,) bool, false where a lane has ended: not finite, or done by the rule's own tolerances."""
        return self.is_finite

    @abstractmethod
    def advance(self, parameters: State, evaluate: Evaluate, stops: Sequence[int], most_evaluations: int) -> bool:
        """Takes every running lane on to step `stops[0]`.

        Args:
            parameters: Updated in place. Once step `stops[0]` is reached, they and `steps`, `is_finite` and
                `is_running` are those of that step; before, they are undefined.
            evaluate: The objective.
            stops: This step and the next few that will be asked for. A lane that reaches `stops[0]` early need not
                wait for the others: it may go on to the last of them.
            most_evaluations: The number of evaluations after which to return.

        Returns:
            Whether the step was reached.
        """

    def batch_step(self, step: int) -> int:
        """The step whose batch the objective is evaluated on at `step`."""
        return step

    def descended(self) -> dict[str, Tensor]:
        """`train_loss` (L,) and `train_grad_norm` (L,) at the step reached, on the batch of `batch_step`; empty if the
        rule has not computed them."""
        return {}

    def observe(self, loss: Tensor) -> None:
        """Ends the lanes whose loss (L,) at the step they have reached is not finite."""
        self.is_finite.logical_and_(torch.isfinite(loss))

    def state_dict(self) -> Mapping[str, Tensor]:
        """All state that steps change, by name, at any time between two calls of `advance`. It is not a copy: the next
        `advance` changes it in place."""
        return {"steps": self.steps, "is_finite": self.is_finite}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continues from the state of an optimizer with the same settings, whose tensors it keeps."""
        self.steps, self.is_finite = state["steps"], state["is_finite"]

    def select(self, lanes: Tensor) -> None:
        """Keeps only the lanes at these positions, (K,) int64."""
        self.settings = self.settings.select(lanes)
        self.steps = self.steps[lanes]
        self.is_finite = self.is_finite[lanes]
