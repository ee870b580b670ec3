"""Trains on a GPU by CUDA graphs: the GPU operations of several steps are captured once, then replayed without Python.

Captured operations work at fixed addresses, so a pack's trainings are kept in a `Resident`: graphs can be replayed even
after some have ended and left. Tests put another `Graph` in place of CUDA's, so they run on CPUs.
Axes: L lane of a `Resident`: the first ones are the pack's, the others unused copies.
"""

from collections.abc import Callable, Sequence
from copy import copy
from itertools import takewhile
from typing import Protocol

import torch

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.executors import Examine
from attnsweep.workloads.engine.first_order import STEPS_AHEAD, take_step
from attnsweep.workloads.engine.functional import loss_and_gradient, over_lanes
from attnsweep.workloads.engine.lane_state import Batches, Blueprint, LaneState, filled_up, shapes_of
from attnsweep.workloads.engine.layout import ROWS, prefixed, under
from attnsweep.workloads.engine.optimizers import State

_RATE, _BATCH = "rate", "batch"
_STEPS_A_REPLAY = 16
"""Steps in a captured graph: a launch costs as much as some kernels, and one copy serves all steps' inputs."""


class Resident(LaneState):
    """The state of up to `size` trainings at fixed addresses."""

    def __init__(self, lanes: LaneState) -> None:
        self.size = size = len(lanes.rows)
        optimizer = copy(lanes.stepping)
        state = {name: filled_up(value, size) for name, value in _state_of(lanes).items()}
        optimizer.load_state_dict(state | {"n_updates": torch.tensor(optimizer.n_updates)})
        optimizer.constants = {name: filled_up(value, size) for name, value in optimizer.constants.items()}
        super().__init__(
            blueprint=lanes.blueprint,
            optimizer=optimizer,
            rows=filled_up(lanes.rows, size),
            buffers={name: filled_up(value, size) for name, value in lanes.buffers.items()},
        )

    def has(self, lanes: LaneState) -> bool:
        return lanes.rows.is_set_to(self.rows[: len(lanes.rows)])

    def load(self, lanes: LaneState) -> None:
        self.rows[: len(lanes.rows)].copy_(lanes.rows)
        own, others = ((state.buffers, state.stepping.constants, _state_of(state)) for state in (self, lanes))
        for memory, values in zip(own, others, strict=True):
            for name, value in values.items():
                memory[name][: len(value)].copy_(value)

    def lend(self, lanes: LaneState) -> None:
        """The pack's parameters and optimizer state become views of this memory, so that no step copies them."""
        n_lanes, optimizer = len(lanes.rows), lanes.optimizer
        state = {name: value[:n_lanes] for name, value in _state_of(self).items()}
        optimizer.load_state_dict(state | {"n_updates": optimizer.state_dict()["n_updates"]})
        lanes.rows = self.rows[:n_lanes]


def resident_of(lanes: LaneState) -> Resident:
    resident = lanes.resident
    if not isinstance(resident, Resident):
        resident = lanes.resident = Resident(lanes)
    elif resident.has(lanes):
        return resident
    else:
        resident.load(lanes)
    resident.lend(lanes)
    return resident


def _state_of(lanes: LaneState) -> State:
    return lanes.stepping.state_of({ROWS: lanes.rows})


class _Step:
    def __init__(self, blueprint: Blueprint) -> None:
        self._layout = blueprint.layout
        self._loss = over_lanes(blueprint.template, blueprint.workload.loss)

    def take(self, resident: Resident, read: State) -> None:
        """`read`: the step's rates and batch, `rate/<name>` and `batch/<name>`."""
        leaf = resident.rows.detach().requires_grad_()
        loss_L = self._loss(self._layout.views(leaf), resident.buffers, under(_BATCH, read))
        loss_L, gradient = loss_and_gradient("loss", loss_L, leaf)
        parameters, optimizer = {ROWS: resident.rows}, resident.stepping
        rates = optimizer.constants | under(_RATE, read)
        take_step(optimizer.rule, parameters, optimizer.state_of(parameters), (loss_L, {ROWS: gradient}), rates)


class Graph(Protocol):
    def capture(self, run: Callable[[], None]) -> None:
        """Records the GPU operations that `run` launches, without executing them."""

    def replay(self) -> None:
        """Runs them on the values that their tensors have by now."""


class CudaGraph:
    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()

    def capture(self, run: Callable[[], None]) -> None:
        with torch.cuda.graph(self._graph):
            run()

    def replay(self) -> None:
        self._graph.replay()


class Graphs:
    """Replays graphs of `n_steps` steps; where fewer are left before a probe, of one."""

    def __init__(
        self,
        new_graph: Callable[[], Graph] = CudaGraph,
        n_steps: int = _STEPS_A_REPLAY,
    ) -> None:
        self._new_graph, self._n_steps = new_graph, n_steps

    def of(self, lanes: LaneState, batch: Batch) -> "CapturedStep":
        return CapturedStep(_Step(lanes.blueprint), batch, self._new_graph, self._n_steps)

    def gradient_of(self, lanes: LaneState, batch: Batch) -> None:
        """`None`: evaluations in line searches differ from each other, so a captured graph could not be replayed."""

    def measures_of(self, lanes: LaneState, batch: Batch, trained_on: Batch | None, examine: Examine) -> None:
        """`None`: probes are few."""


class CapturedStep:
    def __init__(self, step: _Step, batch: Batch, new_graph: Callable[[], Graph], n_steps: int) -> None:
        self._step, self._shapes = step, shapes_of(batch)
        self._new_graph, self._n_steps = new_graph, n_steps
        self._resident: Resident | None = None
        self._captured: dict[int, tuple[Graph, State]] = {}
        self._cannot_capture = False

    def advance(self, lanes: LaneState, batches: Batches, until: int) -> None:
        optimizer, resident = lanes.stepping, resident_of(lanes)
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
                prefixed(_RATE, rates) | prefixed(_BATCH, batch)
                for batch, rates in zip(drawn, rates_of_steps, strict=True)
            ]
            while read:
                n_taken = self._take(resident, read)
                optimizer.n_updates += n_taken
                read = read[n_taken:]

    def _take(self, resident: Resident, read: Sequence[State]) -> int:
        if self._resident is not resident or self._cannot_capture:
            self._resident, self._captured = resident, {}
            # The first step is not captured, because in it the optimizer and libraries allocate memory.
            self._step.take(resident, _filled_up(read[0], resident.size))
            return 1
        n_steps = self._n_steps if len(read) >= self._n_steps else 1
        if n_steps not in self._captured:
            try:
                self._captured[n_steps] = self._capture(resident, read[:n_steps])
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                # A loss may do what a graph cannot record, such as copy from the host. Nothing is computed yet.
                self._cannot_capture = True
                return self._take(resident, read)
        graph, memory = self._captured[n_steps]
        for name, values in memory.items():
            torch.stack([inputs[name] for inputs in read[:n_steps]], out=values[:, : len(read[0][name])])
        graph.replay()
        return n_steps

    def _capture(self, resident: Resident, read: Sequence[State]) -> tuple[Graph, State]:
        filled_inputs = [_filled_up(inputs, resident.size) for inputs in read]
        memory = {name: torch.stack([inputs[name] for inputs in filled_inputs]) for name in filled_inputs[0]}

        def take_all() -> None:
            for number in range(len(read)):
                self._step.take(resident, {name: values[number] for name, values in memory.items()})

        graph = self._new_graph()
        graph.capture(take_all)
        return graph, memory


def _filled_up(read: State, size: int) -> State:
    return {name: filled_up(value, size) for name, value in read.items()}
