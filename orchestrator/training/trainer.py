"""The trainer, in a Ray actor or in the driver's process."""

import contextlib
import platform
import time
import traceback
from bdb import BdbQuit
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from attnsweep.orchestrator.ledger.schema import thinned
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.training.messages import (
    CHECKPOINT_SECONDS,
    HandedBack,
    PackOrder,
    Probed,
    Raised,
    Report,
    RunContext,
    StillTraining,
    Trained,
)
from attnsweep.orchestrator.training.rows import PackContext, ended_rows, standings
from attnsweep.workloads.engine.checkpoint import CheckpointError, from_bytes, to_bytes
from attnsweep.workloads.engine.compiling import executors_on
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.engine.executors import NoCompilerError
from attnsweep.workloads.engine.lane_state import width_on
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import processor, training_settings
from attnsweep.workloads.errors import UserError

STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit, BdbQuit)
"""These end a process or its debugger. Anything else that a training raises is recorded as its failure, even if it is
no `Exception`, such as a panic of an extension module in Rust."""
_MAX_CHARACTERS = 20_000
WORTH_KEEPING_SECONDS = 2.0
"""A pack that has trained for less time is handed back without its state."""
SLICE_SECONDS = 1.0
"""How long a call trains before it reports. Ray cannot cancel a running call."""
_CLOCK_READS_PER_SLICE = 8
"""About so many, though one evaluation takes from half a millisecond to several seconds."""


class Trainer:
    """Trains packs on one device, one at a time."""

    def __init__(
        self, workload: Workload[Any], run: RunContext, device: str, checkpoint_seconds: float = CHECKPOINT_SECONDS
    ) -> None:
        self._workload = workload
        self._run = run
        self._device = device
        self._checkpoint_seconds = checkpoint_seconds
        self._where = f"{platform.node()} {device}"
        self._programs = executors_on(device, run.engine)
        self._order: PackOrder | None = None
        self._pack: Pack[Any] | None = None
        self._reported_step = 0
        self._evaluations_per_clock = 1
        self._started = 0.0
        self._saves_at: float | None = None
        self._is_leaving = False

    def start(self, order: PackOrder) -> Report:
        """Begins or resumes a pack, and trains it for a slice."""
        self._order, self._pack = order, None
        self._started = time.perf_counter()
        self._saves_at = None
        return self.proceed()

    @training_settings()
    def proceed(self, pruned: Sequence[int] = ()) -> Report:
        """Trains for another slice. `pruned` lanes end here, after a `Probed` report."""
        return self._reported(partial(self._proceed, pruned))

    def hand_back(self) -> Report:
        return self._reported(self._hand_back)

    def _reported(self, train: Callable[[], Report]) -> Report:
        try:
            return train()
        except STOPS:
            raise
        except BaseException as error:  # noqa: BLE001
            return self.report_of(error)

    def report_of(self, error: BaseException) -> Raised:
        self._order = self._pack = None
        if isinstance(error, NoCompilerError):
            return Raised(str(error), False, self._device, platform.node(), cannot_compile=True)
        text = text_of(error)
        return Raised(text, _is_out_of_memory(error, text), self._device, platform.node())

    def _proceed(self, pruned: Sequence[int]) -> Report:
        assert self._order is not None
        if self._saves_at is None:
            # The pack has begun, or its last checkpoint has reached the driver.
            self._saves_at = time.perf_counter() + self._checkpoint_seconds
        if self._pack is None:
            self._pack = self._begun(self._order)
            self._order = self._order.without_state()
            self._evaluations_per_clock, self._reported_step = 1, 0
        if pruned:
            self._pack.prune(pruned)
        # An earlier trainer may have handed the pack back at a probe, before the driver answered which trainings to
        # prune. Then this probe is reported again before any training.
        if not self._must_report_probe(self._pack):
            self._train_slice(self._pack)
        if self._must_report_probe(self._pack):
            self._reported_step = self._pack.step
            reached = standings(self._workload, self._order.tasks, self._pack)
            state = self._checkpoint_if_due(self._pack)
            return Probed(self._pack.step, reached, self._pack.running, state, self._where, self._pack.metric())
        if self._pack.done:
            return self._ended(self._order, self._pack)
        if self._is_leaving:
            return self.hand_back()
        state, n_running = self._checkpoint_if_due(self._pack), len(self._pack.running)
        return StillTraining(self._pack.reached, state, n_running, self._where, self._pack.metric())

    def _must_report_probe(self, pack: Pack[Any]) -> bool:
        return self._waits and pack.step > self._reported_step

    @property
    def _waits(self) -> bool:
        return self._order is not None and self._order.waits

    def _checkpoint_if_due(self, pack: Pack[Any]) -> bytes | None:
        if self._saves_at is None or time.perf_counter() < self._saves_at:
            return None
        self._saves_at = None
        return to_bytes(pack.checkpoint())

    def _hand_back(self) -> HandedBack:
        pack, self._order, self._pack = self._pack, None, None
        if pack is None or time.perf_counter() - self._started < WORTH_KEEPING_SECONDS:
            return HandedBack(None)
        return HandedBack(to_bytes(pack.checkpoint()))

    def _begun(self, order: PackOrder) -> Pack[Any]:
        trainings = [task.training for task in order.tasks]
        width = width_on(self._device, order.as_in or len(order.tasks))
        prune_at = [task.pruned_step for task in order.tasks]
        if order.checkpoint is not None:
            with contextlib.suppress(CheckpointError):
                state = from_bytes(order.checkpoint)
                return Pack.resumed(self._workload, trainings, state, self._device, self._programs, width, prune_at)
        return Pack(self._workload, trainings, self._device, programs=self._programs, width=width, prune_at=prune_at)

    def _ended(self, order: PackOrder, pack: Pack[Any]) -> Trained:
        result = pack.result()
        run, model = self._run, _model_of(self._device)
        environment = order.environment or run.environment
        context = PackContext(run.sweep, order.pack, self._device, platform.node(), environment, model)
        rows = ended_rows(self._workload, order.tasks, pack, result, context)
        rows = replace(rows, curves=thinned(rows.curves, run.curves_every))
        self._order = self._pack = None
        return Trained(rows, result.lane_steps, time.perf_counter() - self._started)

    def _train_slice(self, pack: Pack[Any]) -> None:
        started = clock_read_at = time.perf_counter()
        wanted_seconds = SLICE_SECONDS / _CLOCK_READS_PER_SLICE
        n_probes = 1 if self._waits else None
        while not pack.advance(self._evaluations_per_clock, n_probes):
            if self._must_report_probe(pack):
                return
            now = time.perf_counter()
            if now - clock_read_at < wanted_seconds:
                self._evaluations_per_clock *= 2
            elif self._evaluations_per_clock > 1 and now - clock_read_at > 2 * wanted_seconds:
                self._evaluations_per_clock //= 2
            if self._is_leaving or now - started > SLICE_SECONDS:
                return
            clock_read_at = now


def text_of(error: BaseException) -> str:
    """The traceback without credentials, shortened in the middle if very long; of a UserError only its own line."""
    is_mistake = isinstance(error, UserError)
    text = "".join((traceback.format_exception_only if is_mistake else traceback.format_exception)(error))
    # Arrow refuses lone surrogates, and PostgreSQL NUL characters.
    text = text.encode(errors="backslashreplace").decode().replace("\0", r"\x00")
    # Before it is shortened, because half a password would not be recognized.
    text = without_credentials(text)
    if len(text) <= _MAX_CHARACTERS:
        return text
    half = _MAX_CHARACTERS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _is_out_of_memory(error: BaseException, text: str) -> bool:
    # PyTorch's CPU allocator raises a plain RuntimeError.
    in_words = isinstance(error, RuntimeError) and "can't allocate memory" in text
    return in_words or isinstance(error, torch.OutOfMemoryError | MemoryError)


def machine_of(device: str) -> str:
    """The model of the GPU, or the type of processor: the last bits of results depend on it."""
    return _model_of(device) or processor()


def _model_of(device: str) -> str | None:
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else None
