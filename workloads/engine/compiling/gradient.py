"""Compiles loss and gradient of one training, where its whole step cannot be compiled.

Matrix products use PyTorch's kernels; the operations between them are merged into a few loops. The program is called
for one training after another, so that each fits the processor's cache and its bits depend on no other.

Axes: L training to evaluate, n entry of a training's parameters; an axis of size 1 is the training.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, fx
from torch.func import grad_and_value, vmap

from attnsweep.workloads.engine.compiling.lanes_last import check_known
from attnsweep.workloads.engine.compiling.lookups import check_no_places
from attnsweep.workloads.engine.compiling.traces import NoRuleError, Storing, numbers_of, operations_of, traced
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.functional import one_lane
from attnsweep.workloads.engine.lane_state import LaneState
from attnsweep.workloads.engine.layout import prefixed, under
from attnsweep.workloads.engine.optimizers import State

_FEWEST_NUMBERS = 100_000
"""An evaluation is compiled only if it computes at least this many numbers per training. With fewer, the optimizer's
own operations take most of the time."""
_BUFFER, _BATCH = "buffer", "batch"


@dataclass(frozen=True)
class GradientGraph:
    """The traced graph that computes loss and gradient of one training.

    Attributes:
        graph: Reads the parameters, (1, n), and the tensors `names`, (1, ...).
        names: What a loss reads besides its parameters: `buffer/<name>` or `batch/<name>`.
    """

    graph: fx.GraphModule
    names: tuple[str, ...]

    @property
    def n_operations(self) -> int:
        """A measure of the time to compile."""
        return len(operations_of(self.graph))

    @property
    def n_numbers(self) -> int:
        """The number of values that an evaluation computes: a measure of its run time."""
        return numbers_of(self.graph)


def gradient_graph(lanes: LaneState, batch: Batch) -> GradientGraph:
    """Traces loss and gradient of the first training.

    Raises:
        NoRuleError: If they cannot be traced or compiled, or compiling them would not save time.
    """
    problem, read = lanes.problem, _read(lanes.buffers, batch)
    names, loss_of = tuple(read), one_lane(problem.template, problem.workload.loss)

    def descend(row_1n: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        inputs = dict(zip(names, values, strict=True))
        grad_of_lanes = vmap(grad_and_value(loss_of))
        gradients, loss_1 = grad_of_lanes(problem.layout.views(row_1n), under(_BUFFER, inputs), under(_BATCH, inputs))
        return loss_1, problem.layout.rows(gradients)

    first = torch.zeros(1, dtype=torch.int64)
    graph = traced(descend, [lanes.rows[first], *(value[first] for value in read.values())])
    check_known(graph)
    check_no_places(graph)
    gradient = GradientGraph(graph, names)
    if gradient.n_numbers < _FEWEST_NUMBERS:
        raise NoRuleError(
            f"the loss computes fewer than {_FEWEST_NUMBERS:,} numbers, so compiling it would not save time"
        )
    return gradient


class GradientProgram:
    """Computes losses and gradients with a compiled program, for trainings with equal static parameters.

    Args:
        run: The program of `storing`.
    """

    def __init__(self, run: Callable[[list[Tensor]], object]) -> None:
        self._run = run

    def descent(self, rows: Tensor, buffers: State, batch: Batch, lanes: Tensor | None) -> tuple[Tensor, Tensor]:
        """Computes the loss and the gradient of each of some trainings, one row per training.

        Args:
            rows: The parameters of the trainings to evaluate, one row per training.
            lanes: The positions (int64) of the trainings to evaluate; `None` for all.
        """
        read = tuple(_read(buffers, batch).values())
        losses, gradients = [], []
        places = torch.arange(len(rows)) if lanes is None else lanes
        for row_1n, lane in zip(rows.detach().split(1), places.split(1), strict=True):
            # The program may find numbers by their offset from the start of an input, so each input must have the
            # layout for which it was compiled. Tensors that are made by indexing have this layout.
            inputs = [row_1n.clone(), *(value[lane] for value in read)]
            losses.append(rows.new_empty(1))
            gradients.append(torch.empty_like(inputs[0]))
            self._run([losses[-1], gradients[-1], *inputs])
        return torch.cat(losses), torch.cat(gradients)

    @staticmethod
    def examples(lanes: LaneState, batch: Batch) -> list[Tensor]:
        """Returns inputs with which a graph is compiled. The program then accepts only inputs of the same shapes."""
        first = torch.zeros(1, dtype=torch.int64)
        row_1n = lanes.rows.detach()[first]
        read = _read(lanes.buffers, batch)
        return [row_1n.new_empty(1), torch.empty_like(row_1n), row_1n, *(value[first] for value in read.values())]


def storing(gradient: GradientGraph) -> Callable[..., list[Tensor]]:
    """Returns a function, to be compiled, that writes loss and gradient to its first two arguments."""
    interpreter = Storing(gradient.graph)

    def store(loss_1: Tensor, gradient_1n: Tensor, *inputs: Tensor) -> list[Tensor]:
        for place, value in zip((loss_1, gradient_1n), interpreter.run(*inputs), strict=True):
            place.copy_(value)
        return [loss_1.new_zeros(1)]

    return store


def _read(buffers: State, batch: Batch) -> State:
    return prefixed(_BUFFER, buffers) | prefixed(_BATCH, batch)
