"""The trainer: what runs in a Ray actor. It trains one pack at a time, in slices, and hands back rows."""

import contextlib
import platform
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import ray
import torch

from orchestrator.error_text import STOPS, text_of
from orchestrator.records import PackContext, Rows, ended_rows
from orchestrator.tasks import Task
from workloads.engine.checkpoint import CheckpointError, from_bytes, to_bytes
from workloads.engine.contract import Workload
from workloads.engine.pack import Pack

CHECKPOINT_SECONDS = 120.0
"""Between two checkpoints of a pack: at most so much is lost with a machine."""
WORTH_KEEPING_SECONDS = 2.0
"""A pack that has trained for less is handed back without its state."""
SLICE_SECONDS = 1.0
"""How long a call trains before it reports: Ray cannot cancel a running call."""
_LOOKS_PER_SLICE = 8
"""How often the clock is looked at: an evaluation takes from half a millisecond to several seconds."""


@dataclass(frozen=True)
class PackOrder:
    """A pack to train, from its start or from a checkpoint."""

    pack: str
    tasks: Sequence[Task]
    checkpoint: bytes | None = None


@dataclass(frozen=True)
class Progress:
    """A pack that trains on: the step it has reached; now and then its state."""

    step: int
    checkpoint: bytes | None = None


@dataclass(frozen=True)
class HandedBack:
    """A pack that this trainer trains no more; its state, where it has come far enough to be worth keeping."""

    checkpoint: bytes | None


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


Report = Progress | HandedBack | Trained | Raised


class Trainer:
    """Trains packs on one device.

    Args:
        workload: The problem.
        sweep: The sweep that rows are labelled with.
        device: `cpu` or `cuda`.
        checkpoint_seconds: Between two checkpoints of a pack.
    """

    def __init__(
        self, workload: Workload[Any], sweep: str, device: str, checkpoint_seconds: float = CHECKPOINT_SECONDS
    ) -> None:
        # One thread per trainer: more would fight over the cores, and split sums in another order.
        torch.set_num_threads(1)
        self._workload = workload
        self._sweep = sweep
        self._device = device
        self._checkpoint_seconds = checkpoint_seconds
        self._order: PackOrder | None = None
        self._pack: Pack[Any] | None = None
        self._evaluations_per_look = 1
        self._started = self._saved = 0.0
        self._is_leaving = False

    def settle(self) -> str:
        """Answers once Ray has given this trainer its resources and its process is up: with the id of its node.

        From here on SIGTERM, as a machine sends it that is taken away, makes the trainer hand back its pack.
        """
        before = signal.getsignal(signal.SIGTERM)

        def leave(number: int, frame: FrameType | None) -> None:
            self._is_leaving = True
            # Without a pack there is nothing to hand back: then Ray ends the process.
            if self._order is None and callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, leave)
        return str(ray.get_runtime_context().get_node_id())

    def start(self, order: PackOrder) -> Report:
        """Begins a pack, or goes on with it from its checkpoint, and trains a slice."""
        self._order, self._pack = order, None
        self._started = self._saved = time.perf_counter()
        return self.proceed()

    def proceed(self) -> Report:
        """Trains the pack's next slice."""
        return self._at_the_edge(self._proceed)

    def hand_back(self) -> Report:
        """Gives up the pack under way."""
        return self._at_the_edge(self._hand_back)

    def _at_the_edge(self, call: Callable[[], Report]) -> Report:
        """What a call reports; whatever a training raises in it becomes its outcome."""
        try:
            return call()
        except STOPS:
            raise
        except BaseException as error:  # noqa: BLE001
            self._order = self._pack = None
            text = text_of(error)
            return Raised(text, _is_out_of_memory(error, text), self._device, platform.node())

    def _proceed(self) -> Report:
        assert self._order is not None
        if self._pack is None:
            self._pack = self._taken_up(self._order)
            self._evaluations_per_look = 1
        if self._train_slice(self._pack):
            return self._ended(self._order, self._pack)
        if self._is_leaving:
            return self.hand_back()
        if time.perf_counter() - self._saved < self._checkpoint_seconds:
            return Progress(self._pack.step)
        self._saved = time.perf_counter()
        return Progress(self._pack.step, to_bytes(self._pack.checkpoint()))

    def _hand_back(self) -> HandedBack:
        pack, self._order, self._pack = self._pack, None, None
        if pack is None or time.perf_counter() - self._started < WORTH_KEEPING_SECONDS:
            return HandedBack(None)
        return HandedBack(to_bytes(pack.checkpoint()))

    def _taken_up(self, order: PackOrder) -> Pack[Any]:
        trainings = [task.training for task in order.tasks]
        if order.checkpoint is not None:
            with contextlib.suppress(CheckpointError):
                return Pack.resumed(self._workload, trainings, from_bytes(order.checkpoint), self._device)
        return Pack(self._workload, trainings, self._device)

    def _ended(self, order: PackOrder, pack: Pack[Any]) -> Trained:
        result = pack.result()
        context = PackContext(self._sweep, order.pack, self._device, platform.node())
        rows = ended_rows(self._workload, order.tasks, pack, result, context)
        trained = Trained(
            trainings=rows.trainings,
            curves=rows.curves,
            heads=rows.heads,
            lane_steps=result.lane_steps,
            seconds=time.perf_counter() - self._started,
        )
        self._order = self._pack = None
        return trained

    def _train_slice(self, pack: Pack[Any]) -> bool:
        """Trains on for about `SLICE_SECONDS`, or until SIGTERM; True when all trainings have ended."""
        started = looked = time.perf_counter()
        while not pack.advance(self._evaluations_per_look):
            now = time.perf_counter()
            if now - looked < SLICE_SECONDS / _LOOKS_PER_SLICE:
                self._evaluations_per_look *= 2
            elif self._evaluations_per_look > 1 and now - looked > 2 * SLICE_SECONDS / _LOOKS_PER_SLICE:
                self._evaluations_per_look //= 2
            if self._is_leaving or now - started > SLICE_SECONDS:
                return False
            looked = now
        return True


def _is_out_of_memory(error: BaseException, text: str) -> bool:
    # PyTorch's CPU allocator raises a plain RuntimeError.
    in_words = isinstance(error, RuntimeError) and "can't allocate memory" in text
    return in_words or isinstance(error, torch.OutOfMemoryError | MemoryError)
