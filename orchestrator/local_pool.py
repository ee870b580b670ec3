"""A pool without Ray: one trainer in this process, for debuggers, notebooks and machines where Ray cannot start."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from orchestrator.errors import PoolError
from orchestrator.messages import CHECKPOINT_SECONDS, PackOrder, Progress, Raised, Report, Reports
from orchestrator.trainer import Trainer
from workloads.engine.contract import Workload


class LocalPool:
    """Trains one pack, a slice of it whenever it is asked for reports, so that a stop waits for one slice at most.

    Args:
        workload: The problem.
        sweep: The sweep that rows are labelled with.
        checkpoint_seconds: Between two checkpoints of a pack.
    """

    n_trainers = 1
    n_placed = 1

    def __init__(self, workload: Workload[Any], sweep: str, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._trainer = Trainer(workload, sweep, device, checkpoint_seconds)
        self._order: PackOrder | None = None
        self._train_slice: Callable[[], Report] = self._trainer.proceed

    @property
    def has_idle(self) -> bool:
        """Whether a pack can be handed out."""
        return self._order is None

    @property
    def running(self) -> list[PackOrder]:
        """The pack being trained."""
        return [] if self._order is None else [self._order]

    def train(self, order: PackOrder) -> None:
        """Takes a pack, and trains nothing as yet."""
        assert self.has_idle
        self._order, self._train_slice = order, partial(self._trainer.start, order)

    def reports(self, timeout: float) -> Reports:
        """Trains the pack's next slice, which takes as long as it takes.

        Raises:
            PoolError: If this process can use its GPU no more.
        """
        del timeout
        if self._order is None:
            return []
        order, report = self._order, self._train_slice()
        self._train_slice = self._trainer.proceed
        if isinstance(report, Raised) and report.has_lost_its_gpu:
            raise PoolError(f"this process has lost its GPU; without --local another would take over:\n{report.error}")
        if not isinstance(report, Progress):
            self._order = None
        return [(order, report)]

    def hand_back(self, seconds: float) -> Reports:
        """Gives up the pack at once."""
        del seconds
        orders, self._order = self.running, None
        return [(order, self._trainer.hand_back()) for order in orders]

    def close(self) -> None:
        """Drops the pack."""
        self._order = None
