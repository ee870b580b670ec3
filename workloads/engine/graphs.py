"""Trains a pack by CUDA graphs: a step's kernels are captured once and then replayed, without Python between them.

No command chooses it: it has not run on a GPU, and is tested with a stand-in for CUDA's graphs, on CPUs.
`benchmarks/gpu.py` measures it. Axes: L lane.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Protocol

import torch
from torch import Tensor

from attnsweep.workloads.engine.blocks import Problem, shapes_of
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.first_order import STEPS_AHEAD, FirstOrder
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.layout import ROWS, prefixed, under
from attnsweep.workloads.engine.optimizers import State

_RATE, _NUMBER, _BATCH = "rate", "number", "batch"


class Graph(Protocol):
    """A program on the device that can be run again with what its tensors hold by then."""

    def capture(self, run: Callable[[], None]) -> None:
        """Takes down what `run` asks of the device, which is not done now."""

    def replay(self) -> None:
        """Does it."""


class CudaGraph:
    """A `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()

    def capture(self, run: Callable[[], None]) -> None:
        """See `Graph`."""
        with torch.cuda.graph(self._graph):
            run()

    def replay(self) -> None:
        """See `Graph`."""
        self._graph.replay()


class Graphs:
    """The graphs of a pack's steps, for `Pack(programs=)`.

    Args:
        new_graph: Makes an empty graph.
    """

    def __init__(self, new_graph: Callable[[], Graph] = CudaGraph) -> None:
        self._new_graph = new_graph

    def of(self, problem: Problem, optimizer: FirstOrder, rows: Tensor, buffers: State, batch: Batch) -> "GraphedStep":
        """The step of batches of this shape; the other arguments are those of `Programs.of`."""
        del optimizer, rows, buffers
        return GraphedStep(problem, batch, self._new_graph)

    def gradient_of(self, problem: Problem, rows: Tensor, buffers: State, batch: Batch) -> None:
        """None: a search's evaluations differ from each other."""


class GraphedStep:
    """The step of one shape, captured anew for each set of lanes.

    Args:
        problem: What is minimized.
        batch: (L, ...), of the shape.
        new_graph: Makes an empty graph.
    """

    def __init__(self, problem: Problem, batch: Batch, new_graph: Callable[[], Graph]) -> None:
        self._layout = problem.layout
        self._loss = over_lanes(problem.template, problem.workload.loss)
        self._shapes = shapes_of(batch)
        self._new_graph = new_graph
        self._captured: tuple[Graph, Tensor, State] | None = None

    def advance(
        self,
        optimizer: FirstOrder,
        rows: Tensor,
        buffers: State,
        batches: Callable[[int, int], Sequence[Batch]],
        until: int,
    ) -> None:
        """Takes all lanes on to step `until`; as `BlockProgram.advance`."""
        while optimizer.n_updates < until:
            start = optimizer.n_updates
            found = batches(start, min(until, start + STEPS_AHEAD))
            drawn = list(takewhile(lambda batch: shapes_of(batch) == self._shapes, found))
            if not drawn:
                break
            ahead = optimizer.ahead(range(start, start + len(drawn)))
            for batch, (rate_L, numbers) in zip(drawn, ahead, strict=True):
                read = {_RATE: rate_L, **prefixed(_NUMBER, numbers), **prefixed(_BATCH, batch)}
                self._take(optimizer, rows, buffers, read)
                optimizer.n_updates += 1

    def _take(self, optimizer: FirstOrder, rows: Tensor, buffers: State, read: State) -> None:
        # Lanes that leave make new tensors of all state: their memory is no longer that of the graph.
        if self._captured is not None and self._captured[1] is rows:
            graph, _, memory = self._captured
            for name, value in read.items():
                memory[name].copy_(value)
            graph.replay()
            return
        # The first step is taken without a graph: it allocates what steps keep, and what libraries need.
        self._step(optimizer, rows, buffers, read)
        graph, memory = self._new_graph(), {name: value.clone() for name, value in read.items()}
        graph.capture(lambda: self._step(optimizer, rows, buffers, memory))
        self._captured = graph, rows, memory

    def _step(self, optimizer: FirstOrder, rows: Tensor, buffers: State, read: State) -> None:
        leaf = rows.detach().requires_grad_()
        loss_L = self._loss(self._layout.views(leaf), buffers, under(_BATCH, read))
        # Lanes do not mix, so the sum's gradient is each lane's own.
        (gradient,) = torch.autograd.grad(loss_L.sum(), leaf, materialize_grads=True)
        optimizer.take_step({ROWS: rows}, loss_L.detach(), {ROWS: gradient}, read[_RATE], under(_NUMBER, read))
