"""The trainer: what runs in a Ray actor. It trains one pack at a time, in slices, and hands back rows."""

import platform
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from orchestrator.records import PackContext, Rows, ended_rows
from orchestrator.tasks import Task
from workloads.engine.contract import Workload
from workloads.engine.pack import Pack

SLICE_SECONDS = 1.0
"""How long a call trains before it reports: Ray cannot cancel a running call."""
_LOOKS_PER_SLICE = 8
"""How often the clock is looked at: an evaluation takes from half a millisecond to several seconds."""


@dataclass(frozen=True)
class PackOrder:
    """A pack to train."""

    pack: str
    tasks: Sequence[Task]


@dataclass(frozen=True)
class Progress:
    """A pack that trains on: the step it has reached."""

    step: int


@dataclass(frozen=True)
class Trained(Rows):
    """A pack that is done: its rows and the speed it ran at."""

    lane_steps: int
    seconds: float


@dataclass(frozen=True)
class Raised:
    """A pack whose program raised, for one of its lanes or for want of memory."""

    error: str
    out_of_memory: bool
    device: str
    host: str


Report = Progress | Trained | Raised


class Trainer:
    """Trains packs on one device.

    Args:
        workload: The problem.
        sweep: The sweep that rows are labelled with.
        device: `cpu` or `cuda`.
    """

    def __init__(self, workload: Workload[Any], sweep: str, device: str) -> None:
        # One thread per trainer: more would fight over the cores, and split sums in another order.
        torch.set_num_threads(1)
        self._workload = workload
        self._sweep = sweep
        self._device = device
        self._order: PackOrder | None = None
        self._pack: Pack[Any] | None = None
        self._evaluations_per_look = 1
        self._started = 0.0

    def is_placed(self) -> bool:
        """Answers once Ray has given this trainer its resources and its process is up."""
        return True

    def start(self, order: PackOrder) -> Report:
        """Begins a pack and trains its first slice."""
        self._order, self._pack, self._started = order, None, time.perf_counter()
        return self.proceed()

    def proceed(self) -> Report:
        """Trains the pack's next slice."""
        assert self._order is not None
        tasks = self._order.tasks
        try:
            if self._pack is None:
                self._pack = Pack(self._workload, [task.training for task in tasks], self._device)
                self._evaluations_per_look = 1
            if not self._train_slice(self._pack):
                return Progress(self._pack.step)
            result = self._pack.result()
            context = PackContext(self._sweep, self._order.pack, self._device, platform.node())
            rows = ended_rows(self._workload, tasks, self._pack, result, context)
            return Trained(
                trainings=rows.trainings,
                curves=rows.curves,
                heads=rows.heads,
                lane_steps=result.lane_steps,
                seconds=time.perf_counter() - self._started,
            )
        except Exception as error:  # noqa: BLE001  # The trainer's edge: whatever a training raises becomes its outcome.
            self._pack = None
            return Raised(traceback.format_exc(), _is_out_of_memory(error), self._device, platform.node())

    def _train_slice(self, pack: Pack[Any]) -> bool:
        """Trains on for about `SLICE_SECONDS`; True when all trainings have ended."""
        started = looked = time.perf_counter()
        while not pack.advance(self._evaluations_per_look):
            now = time.perf_counter()
            if now - looked < SLICE_SECONDS / _LOOKS_PER_SLICE:
                self._evaluations_per_look *= 2
            elif self._evaluations_per_look > 1 and now - looked > 2 * SLICE_SECONDS / _LOOKS_PER_SLICE:
                self._evaluations_per_look //= 2
            if now - started > SLICE_SECONDS:
                return False
            looked = now
        return True


def _is_out_of_memory(error: Exception) -> bool:
    # PyTorch's CPU allocator raises a plain RuntimeError.
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
