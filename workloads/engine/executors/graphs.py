"""Trains on a GPU by CUDA graphs: the GPU operations of several steps are captured once, then replayed without Python.

Captured operations work at fixed memory addresses. So the trainings of a pack (lanes) are kept in a `Bucket`, and
graphs can still be replayed after trainings have ended and left. Tests replace CUDA's graphs, so they run on CPUs.
Axes: A lane of the pack, L lane of the bucket (the first A lanes are the pack's, the others unused copies), S step.
"""

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from itertools import takewhile
from typing import Protocol

import torch
from torch import Tensor, fx

from attnsweep.workloads.engine.compiling.libraries import over_block
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
from attnsweep.workloads.engine.even_rows import even_rows
from attnsweep.workloads.engine.first_order import STEPS_AHEAD, take_step
from attnsweep.workloads.engine.functional import descent, over_lanes
from attnsweep.workloads.engine.lane_state import Batches, LaneState, Problem, filled_up, shapes_of
from attnsweep.workloads.engine.layout import ROWS, prefixed, under
from attnsweep.workloads.engine.optimizers import State


class Bucket(LaneState):
    """Holds the state of up to `size` trainings at fixed memory addresses, as captured GPU steps require.

    Attributes:
        size: The number of trainings for which there is memory.
    """

    def __init__(self, lanes: LaneState) -> None:
        self.size = size = len(lanes.rows)
        optimizer = copy(lanes.stepping)
        state = {name: filled_up(value, size) for name, value in _state_of(lanes).items()}
        optimizer.load_state_dict(state | {"n_updates": torch.tensor(optimizer.n_updates)})
        optimizer.constants = {name: filled_up(value, size) for name, value in optimizer.constants.items()}
        super().__init__(
            problem=lanes.problem,
            optimizer=optimizer,
            rows=filled_up(lanes.rows, size),
            buffers={name: filled_up(value, size) for name, value in lanes.buffers.items()},
        )

    def has(self, lanes: LaneState) -> bool:
        """Returns whether the given trainings' parameters already lie in this object's memory, at fixed addresses."""
        return lanes.rows.is_set_to(self.rows[: len(lanes.rows)])

    def load(self, lanes: LaneState) -> None:
        """Copies the parameters, buffers and optimizer state of the given trainings to this bucket's memory, whose
        addresses never change."""
        self.rows[: len(lanes.rows)].copy_(lanes.rows)
        own, others = ((state.buffers, state.stepping.constants, _state_of(state)) for state in (self, lanes))
        for memory, values in zip(own, others, strict=True):
            for name, value in values.items():
                memory[name][: len(value)].copy_(value)

    def lend(self, lanes: LaneState) -> None:
        """Replaces the trainings' parameters and optimizer state by views of this object's memory, in which the steps
        are computed, so that no step needs to copy them."""
        n_lanes, optimizer = len(lanes.rows), lanes.optimizer
        state = {name: value[:n_lanes] for name, value in _state_of(self).items()}
        optimizer.load_state_dict(state | {"n_updates": optimizer.state_dict()["n_updates"]})
        lanes.rows = self.rows[:n_lanes]


def bucket_of(lanes: LaneState) -> Bucket:
    """Returns the bucket (memory at fixed addresses) that holds the state of the given trainings, after moving their
    state into it. Trainings that have no bucket yet get a new one."""
    bucket = lanes.resident
    if not isinstance(bucket, Bucket):
        bucket = lanes.resident = Bucket(lanes)
    elif bucket.has(lanes):
        return bucket
    else:
        bucket.load(lanes)
    bucket.lend(lanes)
    return bucket


def _state_of(lanes: LaneState) -> State:
    """Returns by name the optimizer state that steps change, such as running averages, with trainings as first axis."""
    return lanes.stepping.state_of({ROWS: lanes.rows})


Compiler = Callable[[fx.GraphModule, Sequence[Tensor]], Callable[..., object]]
"""The signature of a compiler: it compiles a graph for inputs with the shapes of the examples, to a program that
updates its inputs in place."""


class VmappedStep:
    """Takes steps of a group of trainings at once, with `vmap` and PyTorch's kernels. A `Bucket` holds the tensors of
    the group, and the steps change them in place."""

    def __init__(self, problem: Problem) -> None:
        self._layout = problem.layout
        self._loss = over_lanes(problem.template, problem.workload.loss)

    def load(self, bucket: Bucket) -> None:
        """Does nothing: `take` works on the bucket's own tensors, so there are no copies to fill."""

    def take(self, bucket: Bucket, read: State) -> None:
        """Takes one optimizer step of all trainings whose state `bucket` holds, and changes this state in place.

        Args:
            read: The inputs that change from step to step, by the names of `step_graph`: rates and the batch, with
                trainings as first axis.
        """
        leaf = bucket.rows.detach().requires_grad_()
        with even_rows(leaf.device):
            loss_L = self._loss(self._layout.views(leaf), bucket.buffers, under(BATCH, read))
            loss_L, gradient = descent("loss", loss_L, leaf)
            parameters, optimizer = {ROWS: bucket.rows}, bucket.stepping
            rates = optimizer.constants | under(RATE, read)
            take_step(optimizer.rule, parameters, optimizer.state_of(parameters), (loss_L, {ROWS: gradient}), rates)

    def store(self, bucket: Bucket) -> None:
        """Does nothing, because `take` changes the tensors of `bucket` itself: no results have to be copied to them."""


class MergedPrograms:
    """Takes one optimizer step of many trainings at once on a GPU, with a program that is compiled for each number of
    trainings. The last axis of the program's tensors is the training."""

    def __init__(self, step: StepGraph, compiler: Compiler) -> None:
        self.step, self._compiler = step, compiler
        self._by_width: dict[int, Callable[..., object]] = {}

    def run(self, width: int, inputs: Sequence[Tensor]) -> None:
        """Takes a step of `width` trainings. The first step with this number of trainings compiles the program."""
        if width not in self._by_width:
            self._by_width[width] = self._compiler(over_block(self.step, inputs), inputs)
        self._by_width[width](*inputs)


class MergedStep:
    """Takes optimizer steps of several trainings together, with one compiled GPU program.

    The trainings' state lies at fixed memory addresses, in a `Bucket`. The program works on a copy of this state, in
    which the last axis is the training.
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


_STEPS_A_REPLAY = 16
"""The number of steps in one captured graph. Launching a graph costs as much as some kernels, and copying the inputs of
many steps takes no more kernels than copying those of one step."""


class Graph(Protocol):
    """A captured sequence of GPU operations. A replay runs the operations again, on the values that their tensors have
    by then."""

    def capture(self, run: Callable[[], None]) -> None:
        """Records the GPU operations that the function `run` launches, without executing them."""

    def replay(self) -> None:
        """Runs the recorded GPU operations again."""


class CudaGraph:
    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()

    def capture(self, run: Callable[[], None]) -> None:
        with torch.cuda.graph(self._graph):
            run()

    def replay(self) -> None:
        self._graph.replay()


class Graphs:
    """Makes executors that take training steps by captured CUDA graphs.

    An instance can be passed to `Pack` as its argument `programs`.

    Args:
        n_steps: The number of steps in one graph. If fewer are left before a measurement, they are replayed one by one.
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
        """Returns an object that takes optimizer steps of the trainings `lanes` by replaying CUDA graphs. It takes
        batches whose tensors have the same shapes as those of `batch`."""
        merged = self._merged_of(lanes, batch)
        step = VmappedStep(lanes.problem) if merged is None else MergedStep(merged)
        return GraphedStep(step, batch, self._new_graph, self._n_steps)

    def _merged_of(self, lanes: LaneState, batch: Batch) -> MergedPrograms | None:
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
        """Returns `None`: no CUDA graph is captured for loss and gradient without an optimizer step. PyTorch computes
        them in the usual way.

        They are needed for line searches, whose evaluations differ from each other, so a captured graph could not be
        replayed for them.
        """


class GraphedStep:
    """The executor that takes steps by replaying captured CUDA graphs, on batches of one shape."""

    def __init__(
        self, step: VmappedStep | MergedStep, batch: Batch, new_graph: Callable[[], Graph], n_steps: int
    ) -> None:
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
        if self._bucket is not bucket or self._cannot_capture:
            self._bucket, self._captured = bucket, {}
            # The first step is not recorded as a CUDA graph, because in this step the optimizer and libraries allocate
            # memory.
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
                # At this point nothing has been computed yet, so the step can run again without a graph.
                self._cannot_capture = True
                return self._take(bucket, read)
        graph, memory = self._captured[n_steps]
        for name, values in memory.items():
            torch.stack([inputs[name] for inputs in read[:n_steps]], out=values[:, : len(read[0][name])])
        graph.replay()
        return n_steps

    def _capture(self, bucket: Bucket, read: Sequence[State]) -> tuple[Graph, State]:
        """Captures several steps as one CUDA graph."""
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
