"""The sweep loop: ask, pack, train, commit, tell, project. One thread, the only writer of study and ledger."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from orchestrator.ledger.writer import LedgerWriter
from orchestrator.pool import TrainerLost, TrainerPool
from orchestrator.records import PackContext, failed_rows
from orchestrator.study import Study
from orchestrator.sweep_directory import SweepDirectory
from orchestrator.tasks import Backlog, PackSizer, tasks_of
from orchestrator.trainer import PackOrder, Progress, Raised, Trained
from search_spaces.objective import objective_value
from workloads.engine.contract import Workload
from workloads.errors import SpecError

MAX_LOSSES = 5
"""How often one pack may lose its trainer before the sweep stops."""
_WAIT_SECONDS = 0.5


class SweepError(RuntimeError):
    """The sweep cannot go on; what is committed stays, and `attnsweep resume` continues."""


class Follower(Protocol):
    """Who hears of a sweep's course: the progress display, the MLflow projection."""

    def rows_committed(self, trainings: pa.Table) -> None:
        """Rows have reached the ledger, and the trials they complete are told."""

    def trial_told(self, trial: int) -> None:
        """All trainings of a trial are in the ledger, and the study knows its value."""


@dataclass
class _Tally:
    """The trainings of one trial that have ended."""

    missing: int
    stuck: list[bool] = field(default_factory=list)
    loss: list[float | None] = field(default_factory=list)


class SweepLoop:
    """Runs one sweep to its end.

    Args:
        directory: The sweep.
        workload: Its problem.
        study: Where configurations come from.
        writer: Where rows go.
        pool: Who trains.
        pack_size: Trainings in a pack; `None` finds the fastest.
        followers: Told of each commit, after it.
    """

    def __init__(
        self,
        directory: SweepDirectory,
        workload: Workload[Any],
        study: Study,
        writer: LedgerWriter,
        pool: TrainerPool,
        *,
        pack_size: int | None,
        followers: tuple[Follower, ...],
    ) -> None:
        self._spec = directory.spec
        self._sweep = directory.sweep
        self._workload = workload
        self._study = study
        self._writer = writer
        self._pool = pool
        self._sizer = PackSizer(pack_size)
        self._followers = followers
        self._backlog = Backlog()
        self._retries: list[PackOrder] = []
        self._losses: dict[str, int] = {}
        self._tallies: dict[int, _Tally] = {}

    def take_up(self, rows: pa.Table) -> None:
        """Goes on from an earlier run: tells the trials whose rows (all the ledger's) are complete, queues the rest."""
        for configuration in self._study.unfinished():
            done = _rows_of_trial(rows, configuration.trial)
            replicates = set(done["replicate"].to_pylist())
            tasks = tasks_of(self._spec, self._workload.parameters, configuration)
            self._tallies[configuration.trial] = _Tally(missing=len(tasks))
            self._backlog.add([task for task in tasks if task.replicate not in replicates])
            self._count(done)

    def run(self, should_stop: Callable[[], bool]) -> bool:
        """Trains until the budget is spent, or `should_stop` says so; then packs under way are given up.

        Returns:
            Whether the budget is spent.

        Raises:
            SweepError: If a pack keeps losing its trainer.
        """
        deadline = time.monotonic() + (self._spec.seconds or float("inf"))
        while not should_stop():
            while self._pool.has_idle and (order := self._next_pack(may_ask=time.monotonic() < deadline)):
                self._pool.train(order)
            if not self._pool.running:
                return True
            for order, report in self._pool.reports(_WAIT_SECONDS):
                self._receive(order, report)
        return False

    def _next_pack(self, *, may_ask: bool) -> PackOrder | None:
        if self._retries:
            return self._retries.pop(0)
        size = self._fair_size(may_ask=may_ask)
        while may_ask and self._backlog.largest < size and self._study.n_left:
            self._ask()
        if not len(self._backlog):
            return None
        tasks = self._backlog.take(size)
        return PackOrder(f"{tasks[0].trial:06d}-{tasks[0].replicate:04d}-{len(tasks)}", tasks)

    def _fair_size(self, *, may_ask: bool) -> int:
        """The pack size, lowered where the last packs would leave trainers without work."""
        to_come = self._study.n_left * self._spec.replicates if may_ask else 0
        under_way = sum(len(order.tasks) for order in self._pool.running)
        share = -(-(len(self._backlog) + to_come + under_way) // self._pool.n_trainers)
        return max(min(self._sizer.size, share), 1)

    def _ask(self) -> None:
        configuration = self._study.ask()
        try:
            tasks = tasks_of(self._spec, self._workload.parameters, configuration)
        except SpecError:
            # A combination that the workload refuses: a fact about the trial, not about the sweep.
            self._study.tell(configuration.trial, None)
            return
        self._tallies[configuration.trial] = _Tally(missing=len(tasks))
        self._backlog.add(tasks)

    def _receive(self, order: PackOrder, report: Progress | Trained | Raised | TrainerLost) -> None:
        match report:
            case Trained():
                self._sizer.measured(len(order.tasks), report.lane_steps / report.seconds)
                self._commit(order, report.trainings, report.curves, report.heads)
            case Raised(error=error, out_of_memory=out_of_memory):
                if out_of_memory:
                    self._sizer.out_of_memory(len(order.tasks))
                self._isolate(order, error)
            case TrainerLost(reason=reason):
                self._again(order, reason)

    def _isolate(self, order: PackOrder, error: str) -> None:
        """Splits a pack that raised, down to the lane at fault, whose row says `failed`."""
        n_lanes = len(order.tasks)
        if n_lanes > 1:
            self._retries.append(PackOrder(f"{order.pack}a", order.tasks[: n_lanes // 2]))
            self._retries.append(PackOrder(f"{order.pack}b", order.tasks[n_lanes // 2 :]))
            return
        context = PackContext(self._sweep, order.pack)
        self._commit(order, failed_rows(self._workload, order.tasks, error, context), None, None)

    def _again(self, order: PackOrder, reason: str) -> None:
        self._losses[order.pack] = self._losses.get(order.pack, 0) + 1
        if self._losses[order.pack] > MAX_LOSSES:
            raise SweepError(f"pack {order.pack} lost its trainer {MAX_LOSSES + 1} times; the last time: {reason}")
        self._retries.append(order)

    def _commit(self, order: PackOrder, trainings: pa.Table, curves: pa.Table | None, heads: pa.Table | None) -> None:
        self._writer.commit(order.pack, trainings, curves, heads)
        self._losses.pop(order.pack, None)
        self._count(trainings)
        for follower in self._followers:
            follower.rows_committed(trainings)

    def _count(self, rows: pa.Table) -> None:
        """Adds ended trainings to their trials' tallies and tells the trials that are complete."""
        for row in rows.select(["trial", "outcome", "stuck", "eval_loss"]).to_pylist():
            tally = self._tallies[row["trial"]]
            tally.missing -= 1
            if row["outcome"] != "failed":
                tally.stuck.append(row["stuck"])
                tally.loss.append(row["eval_loss"])
        for trial in sorted(trial for trial, tally in self._tallies.items() if tally.missing == 0):
            tally = self._tallies.pop(trial)
            value = objective_value(self._spec.objective, tally.stuck, tally.loss) if tally.stuck else None
            self._study.tell(trial, value)
            for follower in self._followers:
                follower.trial_told(trial)


def _rows_of_trial(rows: pa.Table, trial: int) -> pa.Table:
    return rows.filter(pa.compute.field("trial") == trial)
