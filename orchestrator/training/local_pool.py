"""A single trainer in this process, for debuggers, notebooks and machines where Ray cannot start."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.messages import (
    CHECKPOINT_SECONDS,
    PackOrder,
    Probed,
    Raised,
    Report,
    Reports,
    RunContext,
    StillTraining,
)
from attnsweep.orchestrator.training.trainer import Trainer, machine_of
from attnsweep.workloads.engine.contract import Workload


class LocalPool:
    n_trainers = 1
    waiting_for = ""

    def __init__(
        self,
        workload: Workload[Any],
        run: RunContext,
        device: str = "cpu",
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        self._trainer = Trainer(workload, run, device, checkpoint_seconds)
        self.machine = machine_of(device)
        self._order: PackOrder | None = None
        self._train_slice: Callable[[], Report] = self._trainer.proceed

    @property
    def idle(self) -> list[str]:
        return [self.machine] if self._order is None else []

    @property
    def machines(self) -> frozenset[str]:
        return frozenset((self.machine,))

    @property
    def running(self) -> list[PackOrder]:
        return [] if self._order is None else [self._order]

    def notices(self) -> list[str]:
        return []

    def train(self, order: PackOrder) -> None:
        """The next call of `reports` begins to train it."""
        assert self.idle
        self._order, self._train_slice = order.without_state(), partial(self._trainer.start, order)

    def answer(self, order: PackOrder, pruned: Sequence[int]) -> None:
        assert order is self._order
        self._train_slice = partial(self._trainer.proceed, pruned)

    def reports(self, timeout: float) -> Reports:
        """Trains the pack for a slice of steps, whatever `timeout`."""
        del timeout
        if self._order is None:
            return []
        order, report = self._order, self._report()
        self._train_slice = self._trainer.proceed
        if isinstance(report, Raised) and report.cannot_compile:
            raise PoolError(report.error)
        if isinstance(report, Raised) and report.has_lost_its_gpu:
            raise PoolError(
                f"this process has lost its GPU; run without --local, so that a new process can replace it:\n"
                f"{report.error}"
            )
        if not isinstance(report, StillTraining | Probed):
            self._order = None
        return [(order, report)]

    def _report(self) -> Report:
        try:
            return self._train_slice()
        except SystemExit as error:
            # Raised by a training. In a trainer actor it would end the actor's process, here the whole sweep.
            return self._trainer.report_of(error)

    def hand_back(self, seconds: float) -> Reports:
        del seconds
        orders, self._order = self.running, None
        return [(order, self._trainer.hand_back()) for order in orders]

    def close(self) -> None:
        self._order = None
