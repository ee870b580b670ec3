"""The state of a pack that steps read and change, in all executors: its width, its lanes and its optimizer.

The width of a pack is the number of lanes that it computes, from its first step to its last. On a GPU, the kernels of
matrix products and sums depend on the number of lanes, and with them the order of additions. So a pack has a fixed
width there: copies of a training, whose results are not read, take the places of trainings that have ended. The bits of
a training then depend on its parameters, its seed and the width, but neither on the other trainings nor on when they
end. On a CPU the bits do not depend on the number of lanes, and ended lanes are dropped.

Axes: L lane, n place in a lane's row.
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
"""The smallest width: a GPU computes this many lanes as fast as one."""


def width_on(device: str, n_trainings: int) -> int | None:
    """Returns how many lanes a pack always computes on this device, a power of two; `None` if that may vary.

    Args:
        n_trainings: The number of trainings with which the pack begins: the column `pack_size`.
    """
    return max(_NARROWEST, 1 << (n_trainings - 1).bit_length()) if device != "cpu" else None


def filled_up(value: Tensor, size: int) -> Tensor:
    """Extends `value` (A, ...) to (size, ...) with copies of its last lane."""
    return value[arange(size, device=value.device).clamp(max=len(value) - 1)]


@dataclass(frozen=True)
class Problem:
    """The training problem of one shape of trainings: workload, module and layout of the parameters.

    Attributes:
        parameters: The parameters of any of the trainings; only static ones are read.
        constants: The digest of the template's constants: all that it holds besides parameters and buffers.
    """

    workload: Workload[Any]
    template: nn.Module
    layout: Layout
    parameters: TrainingParameters
    constants: str

    @property
    def shape(self) -> Hashable:
        """A key that is equal for two problems if and only if they can share programs, for batches of equal shapes."""
        return self.parameters.static_key(), self.constants


@dataclass
class LaneState:
    """The state of L trainings of one shape: parameters, buffers and optimizer, all at the same step.

    Attributes:
        rows: (L, n) the parameters, one row per lane.
        buffers: The modules' buffers (L, ...) by name.
        resident: A copy of this state at fixed memory addresses, for captured CUDA graphs; `None` before any exist.
    """

    problem: Problem
    optimizer: Optimizer
    rows: Tensor
    buffers: State
    resident: "LaneState | None" = None

    @property
    def stepping(self) -> FirstOrder:
        """The optimizer, which must be of first order: a program can take its steps."""
        assert isinstance(self.optimizer, FirstOrder)
        return self.optimizer

    @property
    def parameters(self) -> State:
        """The parameters (L, ...) by name, as views of `rows`."""
        return self.problem.layout.views(self.rows)


Batches = Callable[[int, int], Sequence[Batch]]
"""A function of `start` and `until`: the batches of the steps `start` to `until` - 1, or of the first few of these."""


def shapes_of(batch: Batch) -> Hashable:
    """Returns names, shapes (without the lane axis) and dtypes of a batch (L, ...), by which programs are looked up."""
    return tuple((name, value.shape[1:], value.dtype) for name, value in batch.items())


def optimizer_of(lanes: Lanes[P]) -> Optimizer:
    """Makes the optimizer that the lanes' parameters name, with its state in the floating-point type that it needs."""
    shared = lanes.shared
    # PyTorch's optimizers compute updates of bfloat16 parameters in float32 and then round them, so this function
    # requests the same.
    rounds = lanes.dtype == torch.bfloat16 and shared.optimizer in UPDATE_RULES
    parameters = [training.parameters for training in lanes.trainings]
    dtype = torch.float32 if rounds else lanes.dtype
    return optimizer_named(shared.optimizer, Settings(parameters, shared.n_steps, dtype, lanes.device))


def optimizer_named(name: str, settings: Settings) -> Optimizer:
    """Makes the optimizer with this name, in the state before its first step."""
    return FirstOrder(UPDATE_RULES[name], settings) if name in UPDATE_RULES else Lbfgs(settings)
