"""The state of a pack that steps read and change: parameters, buffers and optimizer.

On a GPU the kernels of products and sums, and with them the order of additions, depend on the number of lanes. So a
pack has a fixed width there: copies, whose results are not read, take the places of trainings that have ended, and bits
depend on parameters, seed and width alone. On a CPU they do not depend on the number of lanes, and ended lanes are
dropped. Axes: L lane (a training, or an unused copy of one).
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, arange, nn

from attnsweep.workloads.engine.contract import Batch, Lanes, P, Workload
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.layout import Layout
from attnsweep.workloads.engine.lbfgs import Lbfgs
from attnsweep.workloads.engine.optimizers import Optimizer, Settings, State
from attnsweep.workloads.parameters import TrainingParameters
from attnsweep.workloads.update_rules import UPDATE_RULES

_NARROWEST = 64
"""On a GPU this many trainings take no longer than one."""


def width_on(device: str, n_trainings: int) -> int | None:
    """The fixed width of a pack on a GPU, a power of two; `None` on a CPU."""
    return max(_NARROWEST, 1 << (n_trainings - 1).bit_length()) if device != "cpu" else None


def filled_up(value: Tensor, size: int) -> Tensor:
    """Extends `value` along its first axis to length `size` by copies of its last entry."""
    return value[arange(size, device=value.device).clamp(max=len(value) - 1)]


@dataclass(frozen=True)
class Blueprint:
    """What trainings with equal static parameters have in common. `parameters` are one training's; `constants` is the
    digest of the module's."""

    workload: Workload[Any]
    template: nn.Module
    layout: Layout
    parameters: TrainingParameters
    constants: str

    @property
    def shape(self) -> Hashable:
        """Trainings of blueprints with equal shapes can share programs."""
        return self.parameters.static_key(), self.constants


@dataclass
class LaneState:
    """Trainings at the same step: a row of parameters each, as `Layout` has them, and buffers (L, ...) by name.
    `resident` is the copy at fixed addresses, for captured graphs."""

    blueprint: Blueprint
    optimizer: Optimizer
    rows: Tensor
    buffers: State
    resident: "LaneState | None" = None

    @property
    def stepping(self) -> FirstOrder:
        """The optimizer, where it is one of first order: only its steps can be compiled or captured."""
        assert isinstance(self.optimizer, FirstOrder)
        return self.optimizer

    @property
    def parameters(self) -> State:
        """By name, (L, ...): views of `rows`."""
        return self.blueprint.layout.views(self.rows)


Batches = Callable[[int, int], Sequence[Batch]]
"""From `start` and `until` the batches of steps `start` to `until` - 1, or of the first few."""


def shapes_of(batch: Batch) -> Hashable:
    """The key of a batch's programs: names, types, and shapes of one training's tensors."""
    return tuple((name, value.shape[1:], value.dtype) for name, value in batch.items())


def optimizer_of(lanes: Lanes[P]) -> Optimizer:
    shared = lanes.shared
    # As PyTorch's optimizers, which update bfloat16 parameters in float32 and round the result.
    rounds = lanes.dtype == torch.bfloat16 and shared.optimizer in UPDATE_RULES
    parameters = [training.parameters for training in lanes.trainings]
    dtype = torch.float32 if rounds else lanes.dtype
    return optimizer_named(shared.optimizer, Settings(parameters, shared.n_steps, dtype, lanes.device))


def optimizer_named(name: str, settings: Settings) -> Optimizer:
    return FirstOrder(UPDATE_RULES[name], settings) if name in UPDATE_RULES else Lbfgs(settings)
