"""Compiles loss and gradient for groups of trainings whose whole step cannot be compiled.

A lane is one training of a pack. Lanes are the first axis, and matrix products use PyTorch's kernels, both as in the
engine that uses `vmap`. The operations between the products are merged into a few loops. A group always has the same
number of lanes, and no loop mixes them, so the bits of a lane depend neither on its pack nor on its place in the group.

Axes: K lane to evaluate, A lane whose training has not ended, N group, W lane of a group, n entry of a lane's
parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, fx
from torch.func import grad_and_value, vmap

from attnsweep.workloads.engine.compiling.lanes_last import check_known
from attnsweep.workloads.engine.compiling.lookups import check_no_places
from attnsweep.workloads.engine.compiling.traces import NoRuleError, Storing, numbers_of, operations_of, traced
from attnsweep.workloads.engine.contract import Batch, Split
from attnsweep.workloads.engine.engine_forms import DROPOUT
from attnsweep.workloads.engine.functional import one_lane
from attnsweep.workloads.engine.lane_state import LaneState
from attnsweep.workloads.engine.layout import prefixed, under
from attnsweep.workloads.engine.optimizers import State

_WIDTH = 8
"""The number of trainings in a group: as many as a vector has single-precision numbers. So a loop over the trainings
ends with a full vector. A remainder would be rounded in another way."""
_FEWEST_NUMBERS = 100_000
"""An evaluation is compiled only if it computes at least this many numbers per training. With fewer, the optimizer's
own operations take most of the time."""
_BUFFER, _BATCH = "buffer", "batch"


@dataclass(frozen=True)
class Parts:
    """Tells how an evaluation of the loss splits its data to save memory: which tensor is split, and into how many
    parts."""

    split: Split | None
    number: int

    def inputs(self, buffers: State, batch: Batch, lanes: Tensor, part: int) -> list[Tensor]:
        """Returns what the compiled program reads besides the weights, for the trainings whose indices are `lanes`: the
        buffers, and one of the parts into which the batch is split."""
        return [value[lanes] for value in _part(_read(buffers, batch), self, part).values()]


@dataclass(frozen=True)
class GradientGraph:
    """The traced graph that computes the loss and the gradient of each training of a group. To save memory, the data
    may be split into parts; one call of the graph then reads one part.

    Attributes:
        graph: Computes one loss and one gradient per training from the parameters, one row per training, and the
            tensors `names`, whose first axis is the training.
        names: The names of the tensors that a loss reads besides its parameters: `buffer/<name>` or `batch/<name>`.
    """

    graph: fx.GraphModule
    names: tuple[str, ...]
    parts: Parts

    @property
    def n_operations(self) -> int:
        """The number of operations in the graph: a measure of its time to compile."""
        return len(operations_of(self.graph))

    @property
    def n_numbers(self) -> int:
        """The number of values that an evaluation of loss and gradient computes per training: a measure of its run
        time."""
        return numbers_of(self.graph) * self.parts.number // _WIDTH


def gradient_graph(lanes: LaneState, batch: Batch) -> GradientGraph:
    """Traces the computation of loss and gradient for a group of trainings with equal static parameters.

    Raises:
        NoRuleError: If loss and gradient cannot be traced or compiled, or compiling them would not save time.
    """
    problem, read = lanes.problem, _read(lanes.buffers, batch)
    split, layout = problem.workload.split(problem.parameters), problem.layout
    if split is not None and under(DROPOUT, batch):
        raise NoRuleError("a loss with dropout cannot be compiled if its data are split into parts")
    parts = Parts(split, _n_parts(read, split))
    names, loss_of = tuple(read), one_lane(problem.template, problem.workload.loss)

    def descend(rows_Wn: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        inputs = dict(zip(names, values, strict=True))
        grad_of_lanes = vmap(grad_and_value(loss_of))
        gradients, loss_W = grad_of_lanes(layout.views(rows_Wn), under(_BUFFER, inputs), under(_BATCH, inputs))
        return loss_W, layout.rows(gradients)

    first = torch.zeros(_WIDTH, dtype=torch.int64)
    part = [value[first] for value in _part(read, parts, 0).values()]
    gradient = GradientGraph(traced(descend, [lanes.rows[first], *part]), names, parts)
    check_known(gradient.graph)
    check_no_places(gradient.graph)
    if gradient.n_numbers < _FEWEST_NUMBERS:
        raise NoRuleError(
            f"the loss computes fewer than {_FEWEST_NUMBERS:,} numbers, so compiling it would not save time"
        )
    return gradient


class GradientProgram:
    """Computes losses and gradients with a compiled program, for trainings with equal static parameters.

    Args:
        run: The program for one part of the data. It adds the part's losses and gradients to its first two inputs.
    """

    def __init__(self, parts: Parts, run: Callable[[list[Tensor]], object]) -> None:
        self._parts, self._run = parts, run

    def descent(self, rows: Tensor, buffers: State, batch: Batch, lanes: Tensor | None) -> tuple[Tensor, Tensor]:
        """Computes the loss and the gradient of each of some trainings, one row per training.

        Args:
            rows: The parameters of the trainings to evaluate, one row per training.
            lanes: The positions (int64) of the trainings to evaluate; `None` for all.
        """
        n_lanes, n_groups = rows.shape[0], -(-rows.shape[0] // _WIDTH)
        # The program computes `_WIDTH` trainings at once. If too few are left for its last call, copies of the last
        # training fill it.
        place_NW = torch.arange(n_groups * _WIDTH).clamp(max=n_lanes - 1).view(n_groups, _WIDTH)
        losses, gradients = [], []
        for place_W in place_NW:
            # The compiled graph may find numbers by their offset in memory from the start of an input, so each input
            # must have the layout for which the graph was compiled. Tensors that are made by indexing have this layout.
            rows_Wn, lane_W = rows.detach()[place_W], place_W if lanes is None else lanes[place_W]
            loss_W, gradient_Wn = rows.new_zeros(_WIDTH), torch.zeros_like(rows_Wn)
            for part in range(self._parts.number):
                self._run([loss_W, gradient_Wn, rows_Wn, *self._parts.inputs(buffers, batch, lane_W, part)])
            losses.append(loss_W)
            gradients.append(gradient_Wn)
        return torch.cat(losses)[:n_lanes], torch.cat(gradients)[:n_lanes]

    @staticmethod
    def examples(graph: GradientGraph, lanes: LaneState, batch: Batch) -> list[Tensor]:
        """Returns inputs with which a graph is compiled. The program then accepts only inputs of the same shapes."""
        first = torch.zeros(_WIDTH, dtype=torch.int64)
        rows_Wn = lanes.rows.detach()[first]
        return [
            rows_Wn.new_zeros(_WIDTH),
            torch.zeros_like(rows_Wn),
            rows_Wn,
            *graph.parts.inputs(lanes.buffers, batch, first, 0),
        ]


def adding(graph: GradientGraph) -> Callable[..., list[Tensor]]:
    """Returns a function that computes loss and gradient on one part of the data, divides them by the number of parts,
    and adds them to running totals, which are its first two arguments. The function is to be compiled.

    Loss and gradient are first divided by the number of parts.
    """
    interpreter = Storing(graph.graph)

    def add(loss_W: Tensor, gradient_Wn: Tensor, *inputs: Tensor) -> list[Tensor]:
        for total, value in zip((loss_W, gradient_Wn), interpreter.run(*inputs), strict=True):
            total.add_(value / graph.parts.number)
        return [loss_W.new_zeros(1)]

    return add


def _read(buffers: State, batch: Batch) -> State:
    return prefixed(_BUFFER, buffers) | prefixed(_BATCH, batch)


def _is_split(name: str, split: Split | None) -> bool:
    return split is not None and name in (f"{_BUFFER}/{split.name}", f"{_BATCH}/{split.name}")


def _n_parts(read: State, split: Split | None) -> int:
    """The smallest number of equal parts of at most `split.most_rows` rows."""
    if split is None:
        return 1
    (n_rows,) = (value.shape[1] for name, value in read.items() if _is_split(name, split))
    fewest = -(-n_rows // split.most_rows)
    for n_parts in range(fewest, 2 * fewest + 1):
        if n_rows % n_parts == 0:
            return n_parts
    raise NoRuleError(
        f"the {n_rows} rows of {split.name} cannot be split into equal parts of about {split.most_rows} rows"
    )


def _part(read: State, parts: Parts, part: int) -> State:
    return {
        name: value.unflatten(1, (parts.number, -1))[:, part] if _is_split(name, parts.split) else value
        for name, value in read.items()
    }
