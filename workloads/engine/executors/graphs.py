"""Trains a pack by CUDA graphs: the kernels of several steps are captured once, then replayed without Python.

Tests replace CUDA's graphs, so they run on CPUs; `benchmarks/gpu.py` measures the speed.
Axes: A lane of the pack, L lane of its bucket, S step.
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
"""The number of steps in one graph. Launching a graph costs as much as some kernels, and copying the inputs of many
steps takes as many kernels as copying those of one step."""


class Graph(Protocol):
    """A captured sequence of device operations, which can be replayed on the present contents of its tensors."""

    def capture(self, run: Callable[[], None]) -> None:
        """Records the device operations that the function `run` launches, without executing them."""

    def replay(self) -> None:
        """Runs the recorded operations again."""


class CudaGraph:
    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()

    def capture(self, run: Callable[[], None]) -> None:
        with torch.cuda.graph(self._graph):
            run()

    def replay(self) -> None:
        self._graph.replay()


class Graphs:
    """The `Executors` that capture steps in CUDA graphs. They are passed as `Pack(programs=...)`.

    Args:
        new_graph: Makes an empty graph.
        n_steps: The number of steps in one graph. If fewer are left before a probe, they are replayed one by one.
        compiler: Compiles a step into one program, if all its operations have rules; `None` for PyTorch's own kernels.
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
        """Returns the executor for steps on batches of this shape."""
        merged = self._merged_of(lanes, batch)
        step: LaneStep = VmappedStep(lanes.problem) if merged is None else MergedStep(merged)
        return GraphedStep(step, batch, self._new_graph, self._n_steps)

    def _merged_of(self, lanes: LaneState, batch: Batch) -> MergedPrograms | None:
        """Returns a step's compiled programs, shared by all packs of one shape; `None` to use PyTorch's own kernels."""
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
        """Returns `None`: evaluations of a line search differ from each other, so no captured graph can be replayed."""


class GraphedStep:
    """The executor that replays captured graphs, for steps on batches of one shape.

    Args:
        step: Takes one step of all lanes.
        batch: A batch (A, ...) of this shape.
        new_graph, n_steps: The arguments of `Graphs`.
    """

    def __init__(self, step: LaneStep, batch: Batch, new_graph: Callable[[], Graph], n_steps: int) -> None:
        self._step, self._shapes = step, shapes_of(batch)
        self._new_graph, self._n_steps = new_graph, n_steps
        self._bucket: Bucket | None = None
        self._captured: dict[int, tuple[Graph, State]] = {}
        self._cannot_capture = False

    def advance(self, lanes: LaneState, batches: Batches, until: int) -> None:
        optimizer, bucket = lanes.stepping, bucket_of(lanes)
        self._step.load(bucket)
        while optimizer.n_updates < until:
            start = optimizer.n_updates
            ahead = list(batches(start, min(until, start + STEPS_AHEAD)))
            while len(ahead) < min(self._n_steps, until - start):
                ahead += batches(start + len(ahead), min(until, start + self._n_steps))
            drawn = list(takewhile(lambda batch: shapes_of(batch) == self._shapes, ahead))
            if not drawn:
                break
            rates_of_steps = optimizer.ahead(range(start, start + len(drawn)))
            read = [
                prefixed(RATE, rates) | prefixed(BATCH, batch)
                for batch, rates in zip(drawn, rates_of_steps, strict=True)
            ]
            while read:
                n_taken = self._take(bucket, read)
                optimizer.n_updates += n_taken
                read = read[n_taken:]
        self._step.store(bucket)

    def _take(self, bucket: Bucket, read: Sequence[State]) -> int:
        """Takes one or more of the steps, given the inputs (A, ...) of each. Returns how many steps were taken."""
        if self._bucket is not bucket or self._cannot_capture:
            self._bucket, self._captured = bucket, {}
            # The first step is taken without a CUDA graph, because it allocates memory of the optimizer and of
            # libraries.
            self._step.take(bucket, _filled_up(read[0], bucket.size))
            return 1
        n_steps = self._n_steps if len(read) >= self._n_steps else 1
        if n_steps not in self._captured:
            try:
                self._captured[n_steps] = self._capture(bucket, read[:n_steps])
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                # A user's loss may contain an operation that a CUDA graph cannot record, such as a copy from the host.
                # Nothing has been computed yet, so the step can be repeated without a graph.
                self._cannot_capture = True
                return self._take(bucket, read)
        graph, memory = self._captured[n_steps]
        for name, values in memory.items():
            torch.stack([inputs[name] for inputs in read[:n_steps]], out=values[:, : len(read[0][name])])
        graph.replay()
        return n_steps

    def _capture(self, bucket: Bucket, read: Sequence[State]) -> tuple[Graph, State]:
        """Captures a graph of as many steps as inputs are given. Returns it with the memory (S, ...) that it reads
        inputs from.
        """
        filled_inputs = [_filled_up(inputs, bucket.size) for inputs in read]
        memory = {name: torch.stack([inputs[name] for inputs in filled_inputs]) for name in filled_inputs[0]}

        def take_all() -> None:
            for number in range(len(read)):
                self._step.take(bucket, {name: values[number] for name, values in memory.items()})

        graph = self._new_graph()
        graph.capture(take_all)
        return graph, memory


def _filled_up(read: State, size: int) -> State:
    return {name: filled_up(value, size) for name, value in read.items()}
