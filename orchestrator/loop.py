"""The sweep loop: ask, pack, train, commit, tell, project. One thread, the only writer of study and ledger."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from orchestrator.errors import SweepError
from orchestrator.ledger.writer import LedgerWriter
from orchestrator.pool import TrainerLost, TrainerPool
from orchestrator.records import PackContext, failed_rows
from orchestrator.study import Configuration, Study
from orchestrator.sweep_directory import SweepDirectory
from orchestrator.tasks import Backlog, PackSizer, Shape, tasks_of
from orchestrator.trainer import PackOrder, Progress, Raised, Trained
from search_spaces.objective import objective_value
from search_spaces.replication import n_wanted
from search_spaces.sweep import LossQuantile, StuckRate
from workloads.engine.contract import Workload
from workloads.errors import SpecError

MAX_LOSSES = 5
"""How often one pack may lose its trainer before the sweep stops."""
MAX_FAILURES_AT_FIRST = 16
"""Trainings that may raise before one is trained; more of the same would only cost time."""
_WAIT_SECONDS = 0.5


class Follower(Protocol):
    """Who hears of a sweep's course: the progress display, the MLflow projection."""

    def rows_committed(self, trainings: pa.Table) -> None:
        """Rows have reached the ledger, and the trials they complete are told."""

    def trial_told(self, trial: int) -> None:
        """All trainings of a trial are in the ledger, and the study knows its value."""


@dataclass
class _Tally:
    """The trainings of one trial: how many are queued or have ended, and the rows of the latter by replicate."""

    configuration: Configuration
    n_queued: int = 0
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def judged(self) -> list[dict[str, Any]]:
        """The rows of trainings that did not fail."""
        return [row for row in self.rows.values() if row["outcome"] != "failed"]

    def stuck(self) -> dict[int, bool | None]:
        """Whether each is stuck; `None` where it failed."""
        return {replicate: None if row["outcome"] == "failed" else row["stuck"] for replicate, row in self.rows.items()}

    def value(self, objective: StuckRate | LossQuantile) -> float | None:
        """What the study is told; `None` where all trainings failed."""
        if not self.judged:
            return None
        outcome, stuck, loss = ([row[name] for row in self.judged] for name in ("outcome", "stuck", "eval_loss"))
        return objective_value(objective, outcome, stuck, loss)


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
        self._directory = directory
        self._spec = directory.spec
        self._workload = workload
        self._study = study
        self._writer = writer
        self._pool = pool
        self._sizers: dict[Shape, PackSizer] = defaultdict(lambda: PackSizer(pack_size))
        self._followers = followers
        self._backlog = Backlog()
        self._retries: list[PackOrder] = []
        self._losses: dict[str, int] = {}
        self._tallies: dict[int, _Tally] = {}
        self._n_trained, self._n_failed = 0, 0

    def take_up(self, rows: pa.Table) -> None:
        """Goes on from an earlier run: tells the trials whose rows (all the ledger's) are complete, queues the rest."""
        for configuration in self._study.unfinished():
            self._enter(configuration, rows.filter(pa.compute.field("trial") == configuration.trial))

    def run(self, should_stop: Callable[[], bool]) -> bool:
        """Trains until the budget is spent, or `should_stop` says so; then packs under way are given up.

        Args:
            should_stop: Asked about twice a second.

        Returns:
            Whether the budget is spent.

        Raises:
            SweepError: If a pack keeps losing its trainer, or nothing but failures comes in.
        """
        seconds_left = (self._spec.seconds or float("inf")) - self._directory.seconds_spent
        deadline = time.monotonic() + seconds_left
        while not should_stop():
            # Ray may have taken all the time there was to start the first trainer.
            may_ask = time.monotonic() < deadline or self._study.n_asked == 0
            while self._pool.has_idle and (order := self._next_pack(may_ask=may_ask)):
                self._pool.train(order)
            if not self._pool.running and not self._has_work(may_ask=may_ask):
                return True
            for order, report in self._pool.reports(_WAIT_SECONDS):
                self._receive(order, report)
        return False

    def _has_work(self, *, may_ask: bool) -> bool:
        return bool(self._retries or len(self._backlog) or (may_ask and self._study.n_left))

    def _next_pack(self, *, may_ask: bool) -> PackOrder | None:
        if self._retries:
            return self._retries.pop(0)
        while may_ask and self._study.n_left and not self._has_full_pack():
            self._enter(self._study.ask())
        shape = self._backlog.fullest
        if shape is None:
            return None
        tasks = self._backlog.take(shape, self._sizers[shape].size(self._fair_share(may_ask=may_ask)))
        return PackOrder(f"{tasks[0].trial:06d}-{tasks[0].replicate:04d}-{len(tasks)}", tasks)

    def _has_full_pack(self) -> bool:
        shape = self._backlog.fullest
        if shape is None:
            return False
        return self._backlog.waiting(shape) >= self._sizers[shape].size(self._fair_share(may_ask=True))

    def _fair_share(self, *, may_ask: bool) -> int:
        """Trainings left, or under way, for each trainer; of trials that may want more, what they want as yet."""
        to_come = self._study.n_left * n_wanted(self._spec.replicates, {}) if may_ask else 0
        under_way = sum(len(order.tasks) for order in self._pool.running)
        return -(-(len(self._backlog) + to_come + under_way) // self._pool.n_trainers)

    def _enter(self, configuration: Configuration, done: pa.Table | None = None) -> None:
        """Queues a trial's trainings but for those whose rows are there."""
        tally = self._tallies[configuration.trial] = _Tally(configuration)
        if done is not None:
            tally.rows = {row["replicate"]: row for row in done.to_pylist()}
        try:
            self._go_on(tally)
        except SpecError as error:
            # A combination that the workload refuses: a fact about the trial, not about the sweep.
            del self._tallies[configuration.trial]
            self._study.refuse(configuration.trial, str(error))

    def _go_on(self, tally: _Tally) -> None:
        """Queues what a trial wants by the rows that are there; tells it where it wants no more."""
        wanted = n_wanted(self._spec.replicates, tally.stuck())
        missing = [replicate for replicate in range(tally.n_queued, wanted) if replicate not in tally.rows]
        if missing:
            self._backlog.add(tasks_of(self._directory, self._workload.parameters, tally.configuration, missing))
        tally.n_queued = wanted
        if len(tally.rows) < wanted:
            return
        trial = tally.configuration.trial
        del self._tallies[trial]
        self._study.tell(trial, tally.value(self._spec.objective), len(tally.judged))
        for follower in self._followers:
            follower.trial_told(trial)

    def _receive(self, order: PackOrder, report: Progress | Trained | Raised | TrainerLost) -> None:
        match report:
            case Trained():
                self._n_trained += len(order.tasks)
                self._sizers[order.tasks[0].shape].measured(len(order.tasks), report.lane_steps / report.seconds)
                self._commit(order, report.trainings, report.curves, report.heads)
            case Raised():
                if report.out_of_memory:
                    self._sizers[order.tasks[0].shape].out_of_memory(len(order.tasks))
                self._isolate(order, report)
            case TrainerLost(reason=reason):
                self._again(order, reason)

    def _isolate(self, order: PackOrder, report: Raised) -> None:
        """Splits a pack that raised, down to the lane at fault, whose row says `failed`."""
        n_lanes = len(order.tasks)
        if n_lanes > 1:
            self._retries.append(PackOrder(f"{order.pack}a", order.tasks[: n_lanes // 2]))
            self._retries.append(PackOrder(f"{order.pack}b", order.tasks[n_lanes // 2 :]))
            return
        context = PackContext(self._directory.sweep, order.pack, report.device, report.host)
        self._commit(order, failed_rows(self._workload, order.tasks, report.error, context), None, None)
        self._n_failed += 1
        if self._n_trained == 0 and self._n_failed >= MAX_FAILURES_AT_FIRST:
            message = f"the first {self._n_failed} trainings all raised; the last:\n{report.error}"
            raise SweepError(message, self._directory.path)

    def _again(self, order: PackOrder, reason: str) -> None:
        self._losses[order.pack] = self._losses.get(order.pack, 0) + 1
        if self._losses[order.pack] > MAX_LOSSES:
            message = f"pack {order.pack} lost its trainer {MAX_LOSSES + 1} times; the last time: {reason}"
            raise SweepError(message, self._directory.path)
        self._retries.append(order)

    def _commit(self, order: PackOrder, trainings: pa.Table, curves: pa.Table | None, heads: pa.Table | None) -> None:
        self._writer.confirm()
        # A trial that the ledger knows must not be asked for again: the study is there to stay before its rows are.
        self._study.save()
        self._writer.commit(order.pack, trainings, curves, heads)
        self._losses.pop(order.pack, None)
        self._count(trainings)
        for follower in self._followers:
            follower.rows_committed(trainings)

    def _count(self, rows: pa.Table) -> None:
        """Adds ended trainings to their trials' tallies, and goes on with these trials."""
        trials = set()
        for row in rows.select(["trial", "replicate", "outcome", "stuck", "eval_loss"]).to_pylist():
            self._tallies[row["trial"]].rows[row["replicate"]] = row
            trials.add(row["trial"])
        for trial in sorted(trials):
            self._go_on(self._tallies[trial])
