"""Trains a pack in blocks of a fixed width, each step of a block by one compiled program.

Axes: A active lane of the pack, N block, W lane of a block (last), S step.
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
from attnsweep.workloads.engine.executors.executor import Batches
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.lane_state import LaneState, shapes_of
from attnsweep.workloads.engine.layout import prefixed
from attnsweep.workloads.engine.optimizers import State

_WIDTH = 64
"""Lanes of a block, if what a step reads then stays in a core's second-level cache."""
_NARROW, _NARROWEST = 16, 8
"""Lanes of a block otherwise; the latter if matrix products take most of the step, since they read each number often: a
matrix of 16 by 48 then fits the first-level cache."""
_CACHE_BYTES = 512 * 1024
_STEPS_AT_ONCE = 64
"""Steps that a block takes before the next block takes them."""


def compiled_graph(lanes: LaneState, batch: Batch) -> StepGraph | GradientGraph:
    """What the engine of blocks compiles for trainings: their step, or else their loss and its gradient.

    Raises:
        NoRuleError: If neither can be compiled; it says why.
    """
    try:
        return step_graph(lanes, batch)
    except NoRuleError as no_step:
        try:
            return gradient_graph(lanes, batch)
        except NoRuleError as no_gradient:
            reasons = dict.fromkeys((str(no_step), str(no_gradient)))
            raise NoRuleError("; ".join(reasons)) from no_gradient


@dataclass(frozen=True)
class Blocking:
    """How the program of a step reads trainings.

    Attributes:
        width: W, the lanes of a block.
        updated: Names of the inputs that it updates.
        shapes: Of the batch that it is made for.
    """

    width: int
    updated: tuple[str, ...]
    shapes: Hashable


@dataclass(frozen=True)
class TracedStep:
    """The step of a shape, ready to be compiled.

    Attributes:
        step: Of one training.
        examples: A block of its inputs, with lanes last.
        blocking: How its program reads trainings.
    """

    step: StepGraph
    examples: Sequence[Tensor]
    blocking: Blocking

    @classmethod
    def of(cls, lanes: LaneState, batch: Batch) -> Self:
        """Traces the step of trainings; the batch (L, ...) is of one step.

        Raises:
            NoRuleError: If it cannot be computed for a block.
        """
        step, inputs = step_graph(lanes, batch), step_inputs(lanes)
        width = _width(inputs, step)
        blocks = _Blocks(inputs, width, masks={})
        examples = [*blocks.of(0), *blocks.of_steps(lanes.stepping, range(1), [batch])[0][0]]
        return cls(step, examples, Blocking(width, step.updated, shapes_of(batch)))


class BlockProgram:
    """The compiled step of one shape.

    Args:
        blocking: How the program reads trainings.
        run: Takes a step of one block.
    """

    def __init__(self, blocking: Blocking, run: Step) -> None:
        self._blocking, self._run = blocking, run

    def advance(self, lanes: LaneState, batches: Batches, until: int) -> None:
        """See `Executor`."""
        optimizer, inputs = lanes.stepping, step_inputs(lanes)
        blocks = _Blocks(inputs, self._blocking.width, masks_of(lanes))
        while optimizer.n_updates < until:
            start = optimizer.n_updates
            found = batches(start, min(until, start + _STEPS_AT_ONCE))
            drawn = list(takewhile(lambda batch: shapes_of(batch) == self._blocking.shapes, found))
            if not drawn:
                break
            steps = range(start, start + len(drawn))
            # Block by block, so that a block stays in the cache.
            for number, of_block in enumerate(blocks.of_steps(optimizer, steps, drawn)):
                block, frozen = blocks.of(number), blocks.frozen(number)
                for of_step in of_block:
                    before = [value.clone() for value, _ in frozen]
                    self._run([*block, *of_step])
                    for (value, moves), kept in zip(frozen, before, strict=True):
                        value.copy_(torch.where(moves, value, kept))
            optimizer.n_updates += len(steps)
        for name in self._blocking.updated:
            inputs[name].copy_(blocks.lanes_of(name))


class _Blocks:
    """The inputs of a step, in blocks.

    Args:
        inputs: (A, ...) by name.
        width: W.
        masks: See `masks_of`.
    """

    def __init__(self, inputs: State, width: int, masks: State) -> None:
        self._n_lanes = next(iter(inputs.values())).shape[0]
        self.n_blocks = -(-self._n_lanes // width)
        # The last block is filled up with copies of the last lane.
        self._lane = torch.arange(self.n_blocks * width).clamp(max=self._n_lanes - 1)
        self._values = {name: self._blocked(name, value, 0) for name, value in inputs.items()}
        self._masks = {name: self._blocked(name, mask, 0) for name, mask in masks.items() if not mask.all()}

    def of(self, number: int) -> list[Tensor]:
        """The inputs (..., W) of one block, which the program updates."""
        return [value[number] for value in self._values.values()]

    def frozen(self, number: int) -> list[tuple[Tensor, Tensor]]:
        """Those inputs of one block in which numbers are frozen, each with the mask of what moves."""
        return [(self._values[name][number], mask[number]) for name, mask in self._masks.items()]

    def lanes_of(self, name: str) -> Tensor:
        """The values (A, ...) of an input that the optimizer sees."""
        value_N1xW = self._values[name]
        return value_N1xW.squeeze(1).movedim(-1, 1).flatten(0, 1)[: self._n_lanes]

    def of_steps(self, optimizer: FirstOrder, steps: range, batches: Sequence[Batch]) -> list[list[list[Tensor]]]:
        """The inputs (..., W) that differ from step to step: by block, by step, in their order."""
        rate_SL1 = optimizer.learning_rate(torch.tensor(steps).view(-1, 1, 1))
        rates = {"learning_rate": rate_SL1, **optimizer.corrections(steps)}
        batch = {name: torch.stack([batch[name] for batch in batches]) for name in batches[0]}
        read = prefixed(RATE, rates) | prefixed(BATCH, batch)
        read_SNxW = [self._blocked(name, value, 1) for name, value in read.items()]
        # Taking apart whole tensors costs a tenth of indexing them.
        read_N = ([of_block.unbind() for of_block in value.unbind(1)] for value in read_SNxW)
        return [list(map(list, zip(*of_block, strict=True))) for of_block in zip(*read_N, strict=True)]

    def _blocked(self, name: str, value: Tensor, axis: int) -> Tensor:
        """Splits the axis of lanes into blocks and lanes, and puts the lanes last."""
        if has_lane_axis(name):
            value = value.unsqueeze(axis + 1)
        if self._n_lanes < self._lane.shape[0]:
            value = value.index_select(axis, self._lane)
        blocked: Tensor = value.unflatten(axis, (self.n_blocks, -1))
        return blocked.movedim(axis + 1, -1).contiguous()


def _width(inputs: State, step: StepGraph) -> int:
    of_one_lane = sum(value[0].numel() * value.element_size() for value in inputs.values())
    if _WIDTH * of_one_lane <= _CACHE_BYTES:
        return _WIDTH
    return _NARROWEST if step.n_multiplications > step.n_numbers / 2 else _NARROW
