"""The state of a pack that steps read and change: parameters, buffers and optimizer.

A lane is one training of the pack, or an unused copy of one. The width of a pack is the number of lanes that it
computes, from its first step to its last. On a GPU, the kernels of matrix products and sums depend on the number of
lanes, and with them the order of additions. So a pack has a fixed width there: copies of a training, whose results are
not read, take the places of trainings that have ended. The bits of a training then depend on its parameters, its seed
and the width, but neither on the other trainings nor on when they end. On a CPU the bits do not depend on the number of
lanes, and ended lanes are dropped.

Axes: L lane, n entry of a lane's parameters.
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
"""The smallest number of trainings that a pack computes on a GPU, where this many take no longer than one."""


def width_on(device: str, n_trainings: int) -> int | None:
    """Returns how many trainings a batched program computes on the given device. On a GPU it is a power of two, and
    copies of trainings fill the program up. On a CPU it is `None`: the program shrinks as trainings end.

    Args:
        n_trainings: The number of trainings with which the pack begins, which is the ledger's column `pack_size`.
    """
    return max(_NARROWEST, 1 << (n_trainings - 1).bit_length()) if device != "cpu" else None


def filled_up(value: Tensor, size: int) -> Tensor:
    """Extends `value` along its first axis, the trainings, to length `size` with copies of its last entry."""
    return value[arange(size, device=value.device).clamp(max=len(value) - 1)]


@dataclass(frozen=True)
class Problem:
    """What trainings with equal static parameters have in common: the workload, the module, and the layout of the
    parameters.

    Attributes:
        parameters: The parameters of any of the trainings; only static ones are read.
        constants: The digest of the module's constants.
    """

    workload: Workload[Any]
    template: nn.Module
    layout: Layout
    parameters: TrainingParameters
    constants: str

    @property
    def shape(self) -> Hashable:
        """A key by which compiled programs are looked up. Two problems have the same key if and only if their trainings
        can share programs."""
        return self.parameters.static_key(), self.constants


@dataclass
class LaneState:
    """The state of trainings with equal static parameters: parameters, buffers and optimizer. All trainings are at the
    same step.

    Attributes:
        rows: The parameters, one row per training.
        buffers: The modules' buffers by name, with trainings as first axis.
        resident: A copy of this state at fixed memory addresses, for captured CUDA graphs; `None` before any graph
            exists.
    """

    problem: Problem
    optimizer: Optimizer
    rows: Tensor
    buffers: State
    resident: "LaneState | None" = None

    @property
    def stepping(self) -> FirstOrder:
        """The optimizer, for code that compiles its steps. Only the steps of first-order optimizers can be compiled;
        any other optimizer makes this property fail with an AssertionError."""
        assert isinstance(self.optimizer, FirstOrder)
        return self.optimizer

    @property
    def parameters(self) -> State:
        """The parameters by name, with trainings as first axis. They share memory with the tensor `rows`: a change of
        one changes the other."""
        return self.problem.layout.views(self.rows)


Batches = Callable[[int, int], Sequence[Batch]]
"""A function of `start` and `until` that returns the batches of steps `start` to `until` - 1, or of the first few."""


def shapes_of(batch: Batch) -> Hashable:
    """Returns a key of a batch, by which compiled programs are looked up: the tensors' names, their types, and their
    shapes for a single training."""
    return tuple((name, value.shape[1:], value.dtype) for name, value in batch.items())


def optimizer_of(lanes: Lanes[P]) -> Optimizer:
    """Makes the optimizer that the trainings' parameters name. Its state has the floating-point type of the model's
    parameters; float32 for bfloat16 parameters, if the optimizer is of first order."""
    shared = lanes.shared
    # PyTorch's optimizers update bfloat16 parameters in float32 and round the result, so this function uses float32
    # too.
    rounds = lanes.dtype == torch.bfloat16 and shared.optimizer in UPDATE_RULES
    parameters = [training.parameters for training in lanes.trainings]
    dtype = torch.float32 if rounds else lanes.dtype
    return optimizer_named(shared.optimizer, Settings(parameters, shared.n_steps, dtype, lanes.device))


def optimizer_named(name: str, settings: Settings) -> Optimizer:
    """Makes the optimizer with this name, ready for its first step."""
    return FirstOrder(UPDATE_RULES[name], settings) if name in UPDATE_RULES else Lbfgs(settings)
