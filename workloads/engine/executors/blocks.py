"""Trains on a CPU in blocks of a fixed number of trainings (lanes). One compiled program takes the steps of all blocks.

Axes: A lane whose training has not ended, N block, W lane of a block (last), S step.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Self

import torch
from torch import Tensor

from attnsweep.workloads.engine.compiling.gradient import GradientGraph, gradient_graph
from attnsweep.workloads.engine.compiling.libraries import Step
from attnsweep.workloads.engine.compiling.step_graph import (
    BATCH,
    RATE,
    StepGraph,
    has_lane_axis,
    masks_of,
    step_graph,
    step_inputs,
)
from attnsweep.workloads.engine.compiling.traces import NoRuleError
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.lane_state import Batches, LaneState, shapes_of
from attnsweep.workloads.engine.layout import prefixed
from attnsweep.workloads.engine.optimizers import State

_WIDTH = 64
"""The number of trainings in a block, if the data that a step then reads fit a core's second-level cache."""
_NARROW, _NARROWEST = 16, 8
"""The numbers of trainings in a block if those of `_WIDTH` do not fit the cache. The smaller number is for steps that
consist mostly of matrix products, which read every number often: with it, a matrix of 16 by 48 fits the first-level
cache."""
_CACHE_BYTES = 512 * 1024
_STEPS_AT_ONCE = 64
"""The number of steps that one block of trainings takes before the next block takes the same steps."""


def compiled_graph(lanes: LaneState, batch: Batch) -> StepGraph | GradientGraph:
    """Returns the compilable graph of a whole training step; if the whole step cannot be compiled, the graph of loss
    and gradient only.

    Raises:
        NoRuleError: If neither graph can be compiled. The message gives the reasons.
    """
    try:
        return step_graph(lanes, batch)
    except NoRuleError as no_step:
        try:
            return gradient_graph(lanes, batch)
        except NoRuleError as no_gradient:
            reasons = "; ".join(dict.fromkeys((str(no_step), str(no_gradient))))
            raise NoRuleError(reasons) from no_gradient


@dataclass(frozen=True)
class Blocking:
    """What a compiled training step expects of its inputs: how many trainings it computes at once, which inputs it
    updates, and the shapes of the tensors in a batch of data.

    Attributes:
        shapes: The key (`shapes_of`) of the batches for which the program is compiled.
    """

    width: int
    updated: tuple[str, ...]
    shapes: Hashable


@dataclass(frozen=True)
class TracedStep:
    """The traced graph of one training's step, with everything that is needed to compile a program that takes the step
    of a fixed number of trainings (a block) at once.

    Attributes:
        examples: Example inputs for one block, with trainings as the last axis.
    """

    step: StepGraph
    examples: Sequence[Tensor]
    blocking: Blocking

    @classmethod
    def of(cls, lanes: LaneState, batch: Batch) -> Self:
        """Traces the optimizer step of the given trainings, to compile it for many trainings at once. `batch` gives the
        shapes of the data.

        Raises:
            NoRuleError: If the step cannot be computed for a block.
        """
        step, inputs = step_graph(lanes, batch), step_inputs(lanes)
        width = _width(inputs, step)
        blocks = _Blocks(inputs, width, masks={})
        examples = [*blocks.of(0), *blocks.of_steps(lanes.stepping, range(1), [batch])[0][0]]
        return cls(step, examples, Blocking(width, step.updated, shapes_of(batch)))


class BlockProgram:
    """Runs a compiled step block by block (a block is a fixed number of trainings), for trainings with equal static
    parameters."""

    def __init__(self, blocking: Blocking, run: Step) -> None:
        self._blocking, self._run = blocking, run

    def advance(self, lanes: LaneState, batches: Batches, until: int) -> None:
        optimizer, inputs = lanes.stepping, step_inputs(lanes)
        blocks = _Blocks(inputs, self._blocking.width, masks_of(lanes))
        while optimizer.n_updates < until:
            start = optimizer.n_updates
            batches_ahead = batches(start, min(until, start + _STEPS_AT_ONCE))
            drawn = list(takewhile(lambda batch: shapes_of(batch) == self._blocking.shapes, batches_ahead))
            if not drawn:
                break
            steps = range(start, start + len(drawn))
            # Each block of trainings takes all steps whose batches are in `drawn` before the next block starts, so that
            # the block's data stay in the CPU cache.
            for number, steps_of_block in enumerate(blocks.of_steps(optimizer, steps, drawn)):
                block, frozen = blocks.of(number), blocks.frozen(number)
                for step_inputs_of_block in steps_of_block:
                    before = [value.clone() for value, _ in frozen]
                    self._run([*block, *step_inputs_of_block])
                    for (value, moves), old in zip(frozen, before, strict=True):
                        value.copy_(torch.where(moves, value, old))
            optimizer.n_updates += len(steps)
        for name in self._blocking.updated:
            inputs[name].copy_(blocks.lanes_of(name))


class _Blocks:
    """The inputs of a training step, split into blocks of trainings."""

    def __init__(self, inputs: State, width: int, masks: State) -> None:
        self._n_lanes = next(iter(inputs.values())).shape[0]
        self.n_blocks = -(-self._n_lanes // width)
        # Trainings are computed in blocks of equal size. If too few are left for the last block, copies of the last
        # training fill it.
        self._lane = torch.arange(self.n_blocks * width).clamp(max=self._n_lanes - 1)
        self._values = {name: self._blocked(name, value, 0) for name, value in inputs.items()}
        self._masks = {name: self._blocked(name, mask, 0) for name, mask in masks.items() if not mask.all()}

    def of(self, number: int) -> list[Tensor]:
        return [value[number] for value in self._values.values()]

    def frozen(self, number: int) -> list[tuple[Tensor, Tensor]]:
        return [(self._values[name][number], mask[number]) for name, mask in self._masks.items()]

    def lanes_of(self, name: str) -> Tensor:
        """Returns the values of a training step's input for all trainings; the first axis is the training."""
        value_N1xW = self._values[name]
        return value_N1xW.squeeze(1).movedim(-1, 1).flatten(0, 1)[: self._n_lanes]

    def of_steps(self, optimizer: FirstOrder, steps: range, batches: Sequence[Batch]) -> list[list[list[Tensor]]]:
        rate_SL1 = optimizer.learning_rate(torch.tensor(steps).view(-1, 1, 1))
        rates = {"learning_rate": rate_SL1, **optimizer.corrections(steps)}
        batch = {name: torch.stack([batch[name] for batch in batches]) for name in batches[0]}
        read = prefixed(RATE, rates) | prefixed(BATCH, batch)
        read_SNxW = [self._blocked(name, value, 1) for name, value in read.items()]
        # `unbind` takes a tenth of the time of indexing the tensor separately for each block and each step.
        read_N = ([values_of_block.unbind() for values_of_block in value.unbind(1)] for value in read_SNxW)
        return [list(map(list, zip(*values_of_block, strict=True))) for values_of_block in zip(*read_N, strict=True)]

    def _blocked(self, name: str, value: Tensor, axis: int) -> Tensor:
        """Splits the trainings, which lie along `axis` of `value`, into blocks of equal size."""
        if has_lane_axis(name):
            value = value.unsqueeze(axis + 1)
        if self._n_lanes < self._lane.shape[0]:
            value = value.index_select(axis, self._lane)
        blocked: Tensor = value.unflatten(axis, (self.n_blocks, -1))
        return blocked.movedim(axis + 1, -1).contiguous()


def _width(inputs: State, step: StepGraph) -> int:
    bytes_per_lane = sum(value[0].numel() * value.element_size() for value in inputs.values())
    if _WIDTH * bytes_per_lane <= _CACHE_BYTES:
        return _WIDTH
    return _NARROWEST if step.n_multiplications > step.n_numbers / 2 else _NARROW
