"""A step of all lanes of a bucket, in the kernels of PyTorch or in one program. What CUDA graphs capture.

Axes: L lane of the bucket.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, fx

from attnsweep.workloads.engine.compiling.libraries import over_block
from attnsweep.workloads.engine.compiling.step_graph import BATCH, RATE, StepGraph, has_lane_axis, masks_of, step_inputs
from attnsweep.workloads.engine.even_rows import even_rows
from attnsweep.workloads.engine.executors.bucket import Bucket
from attnsweep.workloads.engine.first_order import take_step
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.lane_state import Problem
from attnsweep.workloads.engine.layout import ROWS, under
from attnsweep.workloads.engine.optimizers import State

Compiler = Callable[[fx.GraphModule, Sequence[Tensor]], Callable[..., object]]
"""Makes a program of a graph, for inputs like these, which it updates in place."""


class LaneStep(Protocol):
    """Takes steps of a bucket's lanes."""

    def load(self, bucket: Bucket) -> None:
        """Takes over the state of a bucket, before its next steps."""

    def take(self, bucket: Bucket, read: State) -> None:
        """Takes one step.

        Args:
            bucket: The one last loaded.
            read: What differs from step to step, by the names of `step_graph`: rates (L, 1), and the batch (L, ...).
        """

    def store(self, bucket: Bucket) -> None:
        """Gives the state back."""


class VmappedStep:
    """A step in PyTorch's own kernels, on the bucket's memory."""

    def __init__(self, problem: Problem) -> None:
        self._layout = problem.layout
        self._loss = over_lanes(problem.template, problem.workload.loss)

    def load(self, bucket: Bucket) -> None:
        """Nothing: it works on the bucket's memory."""

    def take(self, bucket: Bucket, read: State) -> None:
        """See `LaneStep`."""
        leaf = bucket.rows.detach().requires_grad_()
        with even_rows(leaf.device):
            loss_L = self._loss(self._layout.views(leaf), bucket.buffers, under(BATCH, read))
            # Lanes do not mix, so the sum's gradient is each lane's own.
            (gradient,) = torch.autograd.grad(loss_L.sum(), leaf, materialize_grads=True)
            own, optimizer, found = {ROWS: bucket.rows}, bucket.stepping, (loss_L.detach(), {ROWS: gradient})
            rates = optimizer.constants | under(RATE, read)
            take_step(optimizer.rule, own, optimizer.state_of(own), found, rates)

    def store(self, bucket: Bucket) -> None:
        """Nothing: see `load`."""


class MergedPrograms:
    """The programs of one shape's step, with the lanes as the last axis as in blocks on a CPU: one for each width.

    Args:
        step: The step of one training.
        compiler: Compiles it.
    """

    def __init__(self, step: StepGraph, compiler: Compiler) -> None:
        self.step, self._compiler = step, compiler
        self._by_width: dict[int, Callable[..., object]] = {}

    def run(self, width: int, inputs: Sequence[Tensor]) -> None:
        """Takes a step of so many lanes; compiled at the first one."""
        if width not in self._by_width:
            self._by_width[width] = self._compiler(over_block(self.step, inputs), inputs)
        self._by_width[width](*inputs)


class MergedStep:
    """A step in one program.

    Args:
        programs: Of the shape.
    """

    def __init__(self, programs: MergedPrograms) -> None:
        self._programs = programs
        self._bucket: Bucket | None = None
        self._state: State = {}
        self._moves: State = {}

    def load(self, bucket: Bucket) -> None:
        """See `LaneStep`."""
        own, masks = step_inputs(bucket), masks_of(bucket)
        if self._bucket is not bucket:
            self._bucket = bucket
            self._state, self._moves = (
                {name: _lanes_last(name, value).clone() for name, value in each.items()} for each in (own, masks)
            )
        else:
            for memory, values in ((self._state, own), (self._moves, masks)):
                for name, value in values.items():
                    memory[name].copy_(_lanes_last(name, value))

    def take(self, bucket: Bucket, read: State) -> None:
        """See `LaneStep`."""
        inputs = self._programs.step.inputs
        of_step = [_lanes_last(name, read[name]) for name in inputs if name not in self._state]
        before = {name: self._state[name].clone() for name in self._moves}
        self._programs.run(bucket.size, [*self._state.values(), *of_step])
        for name, moves in self._moves.items():
            self._state[name].copy_(torch.where(moves, self._state[name], before[name]))

    def store(self, bucket: Bucket) -> None:
        """See `LaneStep`."""
        own = step_inputs(bucket)
        for name in self._programs.step.updated:
            own[name].copy_(self._state[name].squeeze(0).movedim(-1, 0))


def _lanes_last(name: str, value: Tensor) -> Tensor:
    """An input of the program, (..., L)."""
    return (value.unsqueeze(1) if has_lane_axis(name) else value).movedim(0, -1).contiguous()
