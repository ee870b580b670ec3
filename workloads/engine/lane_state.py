"""What a step of many trainings reads and changes, whoever takes it. Axes: L lane, n place in a row."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch, Workload
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.layout import Layout
from attnsweep.workloads.engine.optimizers import Optimizer, State
from attnsweep.workloads.parameters import TrainingParameters


@dataclass(frozen=True)
class Problem:
    """What the trainings of one shape minimize.

    Attributes:
        workload: The workload.
        template: The module of one training.
        layout: How its parameters are laid out.
        parameters: Those of a training; only static ones are read.
        constants: The digest of what the template holds besides parameters and buffers.
    """

    workload: Workload[Any]
    template: nn.Module
    layout: Layout
    parameters: TrainingParameters
    constants: str

    @property
    def shape(self) -> Hashable:
        """Equal for two problems whose programs are the same, for batches of one shape."""
        return self.parameters.static_key(), self.constants


@dataclass
class LaneState:
    """Trainings of one shape, at the step that their optimizer has reached.

    Attributes:
        problem: What they minimize.
        optimizer: Their update rule, with its state.
        rows: (L, n) their parameters.
        buffers: (L, ...) by name.
        resident: The same in memory that stays where it is, for captured steps; `None` before there are some.
    """

    problem: Problem
    optimizer: Optimizer
    rows: Tensor
    buffers: State
    resident: "LaneState | None" = None

    @property
    def stepping(self) -> FirstOrder:
        """The update rule, of trainings that take one step after the other."""
        assert isinstance(self.optimizer, FirstOrder)
        return self.optimizer

    @property
    def parameters(self) -> State:
        """(L, ...) by name, in the memory of `rows`."""
        return self.problem.layout.views(self.rows)


def shapes_of(batch: Batch) -> Hashable:
    """What a program is compiled for: a batch (L, ...) may have other shapes at another step."""
    return tuple((name, value.shape[1:], value.dtype) for name, value in batch.items())
