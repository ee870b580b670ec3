"""Steps of all lanes of a bucket, for capture in CUDA graphs: with PyTorch's own kernels, or in one merged program.

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
"""Compiles a graph for inputs of the shapes of the examples. The program updates its inputs in place."""


class LaneStep(Protocol):
    """A way to take steps of all lanes of a bucket."""

    def load(self, bucket: Bucket) -> None:
        """Reads the state of a bucket before the bucket's next steps."""

    def take(self, bucket: Bucket, read: State) -> None:
        """Takes one step of all lanes.

        Args:
            bucket: The bucket that was loaded last.
            read: The inputs that change from step to step, by the names of `step_graph`: rates (L, 1) and the batch
                (L, ...).
        """

    def store(self, bucket: Bucket) -> None:
        """Writes the state back to the bucket after its steps."""


class VmappedStep:
    """Takes steps with `vmap` and PyTorch's own kernels, directly in the bucket's memory."""

    def __init__(self, problem: Problem) -> None:
        self._layout = problem.layout
        self._loss = over_lanes(problem.template, problem.workload.loss)

    def load(self, bucket: Bucket) -> None:
        """Does nothing, because steps work directly in the bucket's memory."""

    def take(self, bucket: Bucket, read: State) -> None:
        leaf = bucket.rows.detach().requires_grad_()
        with even_rows(leaf.device):
            loss_L = self._loss(self._layout.views(leaf), bucket.buffers, under(BATCH, read))
            # The loss of a lane depends on that lane alone, so the gradient of the sum consists of the gradients of the
            # single lanes.
            (gradient,) = torch.autograd.grad(loss_L.sum(), leaf, materialize_grads=True)
            parameters, optimizer, evaluated = {ROWS: bucket.rows}, bucket.stepping, (loss_L.detach(), {ROWS: gradient})
            rates = optimizer.constants | under(RATE, read)
            take_step(optimizer.rule, parameters, optimizer.state_of(parameters), evaluated, rates)

    def store(self, bucket: Bucket) -> None:
        """Does nothing, because steps work directly in the bucket's memory."""


class MergedPrograms:
    """The compiled programs of one step, one for each number of lanes. Lanes are the last axis, like in CPU blocks.

    Args:
        step: The graph of the step of one training.
        compiler: Compiles the graph.
    """

    def __init__(self, step: StepGraph, compiler: Compiler) -> None:
        self.step, self._compiler = step, compiler
        self._by_width: dict[int, Callable[..., object]] = {}

    def run(self, width: int, inputs: Sequence[Tensor]) -> None:
        """Takes a step of `width` lanes. Compiles the program at the first step of this width."""
        if width not in self._by_width:
            self._by_width[width] = self._compiler(over_block(self.step, inputs), inputs)
        self._by_width[width](*inputs)


class MergedStep:
    """Takes steps with one compiled program, on copies of the bucket's tensors with lanes as the last axis.

    Args:
        programs: The compiled programs of the step.
    """

    def __init__(self, programs: MergedPrograms) -> None:
        self._programs = programs
        self._bucket: Bucket | None = None
        self._state: State = {}
        self._moves: State = {}

    def load(self, bucket: Bucket) -> None:
        inputs, masks = step_inputs(bucket), masks_of(bucket)
        if self._bucket is not bucket:
            self._bucket = bucket
            self._state, self._moves = (
                {name: _lanes_last(name, value).clone() for name, value in values.items()} for values in (inputs, masks)
            )
        else:
            for memory, values in ((self._state, inputs), (self._moves, masks)):
                for name, value in values.items():
                    memory[name].copy_(_lanes_last(name, value))

    def take(self, bucket: Bucket, read: State) -> None:
        inputs = self._programs.step.inputs
        changing_inputs = [_lanes_last(name, read[name]) for name in inputs if name not in self._state]
        before = {name: self._state[name].clone() for name in self._moves}
        self._programs.run(bucket.size, [*self._state.values(), *changing_inputs])
        for name, moves in self._moves.items():
            self._state[name].copy_(torch.where(moves, self._state[name], before[name]))

    def store(self, bucket: Bucket) -> None:
        inputs = step_inputs(bucket)
        for name in self._programs.step.updated:
            inputs[name].copy_(self._state[name].squeeze(0).movedim(-1, 0))


def _lanes_last(name: str, value: Tensor) -> Tensor:
    return (value.unsqueeze(1) if has_lane_axis(name) else value).movedim(0, -1).contiguous()
