"""Trains a pack by CUDA graphs: the kernels of some steps are captured once and then replayed, without Python between.

Tested with a stand-in for CUDA's graphs, on CPUs; `benchmarks/gpu.py` measures it. Axes: A lane of the pack, L lane of
its bucket, S step.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import takewhile
from typing import Protocol

import torch

from attnsweep.workloads.engine.compiling.step_graph import BATCH, RATE, step_graph
from attnsweep.workloads.engine.compiling.traces import NoRuleError
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.executors.bucket import Bucket, bucket_of
from attnsweep.workloads.engine.executors.bucket_steps import (
    Compiler,
    LaneStep,
    MergedPrograms,
    MergedStep,
    VmappedStep,
)
from attnsweep.workloads.engine.executors.executor import Batches
from attnsweep.workloads.engine.first_order import STEPS_AHEAD
from attnsweep.workloads.engine.lane_state import LaneState, shapes_of
from attnsweep.workloads.engine.layout import prefixed
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.width import filled_up

_STEPS_A_REPLAY = 16
"""Launching a graph costs as much as some kernels, and what the steps read is copied by as many kernels for all of them
as for one."""


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
        n_steps: Steps of a replay; where fewer are left before a probe, they are replayed one by one.
        compiler: Merges the operations of a step, if there is a rule for each; `None` for PyTorch's own kernels.
    """

    def __init__(
        self,
        new_graph: Callable[[], Graph] = CudaGraph,
        n_steps: int = _STEPS_A_REPLAY,
        compiler: Compiler | None = None,
    ) -> None:
        self._new_graph, self._n_steps, self._compiler = new_graph, n_steps, compiler
        self._merged: dict[Hashable, MergedPrograms | None] = {}

    def of(self, lanes: LaneState, batch: Batch) -> "GraphedStep":
        """The step of batches of this shape."""
        merged = self._merged_of(lanes, batch)
        step: LaneStep = VmappedStep(lanes.problem) if merged is None else MergedStep(merged)
        return GraphedStep(step, batch, self._new_graph, self._n_steps)

    def _merged_of(self, lanes: LaneState, batch: Batch) -> MergedPrograms | None:
        """The merged step of a shape, compiled once for all its packs; `None` if PyTorch's own kernels take it."""
        if self._compiler is None:
            return None
        shape = (lanes.problem.shape, lanes.stepping.operations, shapes_of(batch))
        if shape not in self._merged:
            try:
                step = step_graph(lanes, batch)
            except NoRuleError:
                self._merged[shape] = None
            else:
                self._merged[shape] = MergedPrograms(step, self._compiler)
        return self._merged[shape]

    def gradient_of(self, lanes: LaneState, batch: Batch) -> None:
        """None: a search's evaluations differ from each other."""


class GraphedStep:
    """The steps of one shape.

    Args:
        step: Takes a step of all lanes.
        batch: (A, ...), of the shape.
        new_graph, n_steps: As `Graphs` takes them.
    """

    def __init__(self, step: LaneStep, batch: Batch, new_graph: Callable[[], Graph], n_steps: int) -> None:
        self._step, self._shapes = step, shapes_of(batch)
        self._new_graph, self._n_steps = new_graph, n_steps
        self._bucket: Bucket | None = None
        self._captured: dict[int, tuple[Graph, State]] = {}
        self._cannot_capture = False

    def advance(self, lanes: LaneState, batches: Batches, until: int) -> None:
        """Takes all lanes on to step `until`; as `BlockProgram.advance`."""
        optimizer, bucket = lanes.stepping, bucket_of(lanes)
        self._step.load(bucket)
        while optimizer.n_updates < until:
            start = optimizer.n_updates
            found = list(batches(start, min(until, start + STEPS_AHEAD)))
            while len(found) < min(self._n_steps, until - start):
                found += batches(start + len(found), min(until, start + self._n_steps))
            drawn = list(takewhile(lambda batch: shapes_of(batch) == self._shapes, found))
            if not drawn:
                break
            ahead = optimizer.ahead(range(start, start + len(drawn)))
            read = [prefixed(RATE, rates) | prefixed(BATCH, batch) for batch, rates in zip(drawn, ahead, strict=True)]
            while read:
                n_taken = self._take(bucket, read)
                optimizer.n_updates += n_taken
                read = read[n_taken:]
        self._step.store(bucket)

    def _take(self, bucket: Bucket, read: Sequence[State]) -> int:
        """Takes the first of the steps that read this, (A, ...); returns how many."""
        if self._bucket is not bucket or self._cannot_capture:
            self._bucket, self._captured = bucket, {}
            # The first step is taken without a graph: it allocates what steps keep, and what libraries need.
            self._step.take(bucket, _filled_up(read[0], bucket.size))
            return 1
        n_steps = self._n_steps if len(read) >= self._n_steps else 1
        if n_steps not in self._captured:
            try:
                self._captured[n_steps] = self._capture(bucket, read[:n_steps])
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                # A user's loss can ask for what no graph holds, such as a copy from the host. Nothing was computed yet.
                self._cannot_capture = True
                return self._take(bucket, read)
        graph, memory = self._captured[n_steps]
        for name, values in memory.items():
            torch.stack([of_step[name] for of_step in read[:n_steps]], out=values[:, : len(read[0][name])])
        graph.replay()
        return n_steps

    def _capture(self, bucket: Bucket, read: Sequence[State]) -> tuple[Graph, State]:
        """A graph of as many steps, and the memory (S, ...) where they find what they read."""
        filled = [_filled_up(of_step, bucket.size) for of_step in read]
        memory = {name: torch.stack([of_step[name] for of_step in filled]) for name in filled[0]}

        def take_all() -> None:
            for number in range(len(read)):
                self._step.take(bucket, {name: values[number] for name, values in memory.items()})

        graph = self._new_graph()
        graph.capture(take_all)
        return graph, memory


def _filled_up(read: State, size: int) -> State:
    """What a bucket of this size reads where its lanes (A, ...) read this."""
    return {name: filled_up(value, size) for name, value in read.items()}
