"""The state of a pack that steps read and change, in all executors. Axes: L lane, n place in a lane's row."""

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
    """The training problem of one shape of trainings: workload, module and layout of the parameters.

    Attributes:
        workload: The workload.
        template: The module of one training.
        layout: The positions of the module's parameters in a lane's row.
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
        problem: The problem that the trainings share.
        optimizer: The optimizer, with its state.
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


def shapes_of(batch: Batch) -> Hashable:
    """Returns names, shapes (without the lane axis) and dtypes of a batch (L, ...), by which programs are looked up."""
    return tuple((name, value.shape[1:], value.dtype) for name, value in batch.items())
