"""The sweep loop: ask, pack, train, commit, tell, project. One thread, the only writer of study and ledger."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from attnsweep.orchestrator.ledger.trial import complete_among
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.running.backlog import Backlog, PackSizer
from attnsweep.orchestrator.running.checkpoints import Checkpoints
from attnsweep.orchestrator.running.study import Configuration, Study
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.storage.whereabouts import PackUnderWay
from attnsweep.orchestrator.training.identity import Shape, Task, tasks_of
from attnsweep.orchestrator.training.messages import (
    HandedBack,
    PackOrder,
    Progress,
    Raised,
    Report,
    Trained,
    TrainerLost,
)
from attnsweep.orchestrator.training.pool import Pool
from attnsweep.orchestrator.training.rows import PackContext, failed_rows, in_environment
from attnsweep.search_spaces.objective import objective_value
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.search_spaces.sweep import LossQuantile, StuckRate
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import SpecError

MAX_LOSSES = 2
"""How often one pack may lose its trainer and get no further; after the next time it is split, for a lane may be the
cause."""
MAX_LOSSES_ALONE = 5
"""The same for a training by itself, which then has failed."""
MAX_LOSSES_IN_A_ROW = 16
"""Trainers that may be lost while no pack gets further, and four more for each trainer, before the sweep stops."""
MAX_FAILURES_AT_FIRST = 16
"""Trainings that may raise before one is trained; more of the same would only cost time."""
HAND_BACK_SECONDS = 3.5
"""How long a stop waits for packs under way: a trainer answers once its slice is over. The rest of `STOP_SECONDS` is
MLflow's."""
_WAIT_SECONDS = 0.5


class Follower(Protocol):
    """Who hears of a sweep's course: the progress display, the MLflow projection."""

    def rows_committed(self, trainings: pa.Table) -> None:
        """Rows have reached the ledger, and the trials they complete are told."""

    def trial_told(self, trial: int) -> None:
        """All trainings of a trial are in the ledger, and the study knows its value."""


@dataclass(frozen=True, slots=True)
class Found:
    """What an earlier run has left.

    Attributes:
        n_kept: Trainings whose rows are there.
        n_told: Trials told now, whose rows were complete.
        n_queued: Trainings to be trained again.
        n_from_checkpoint: Of these, those that go on in mid-course.
    """

    n_kept: int
    n_told: int
    n_queued: int
    n_from_checkpoint: int


@dataclass
class _Tally:
    """The trainings of one trial: how many are queued or have ended, and the rows of the latter by replicate."""

    configuration: Configuration
    is_told: bool = False
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
        max_failures: Trainings that may fail in this run; `None` for any number.
        followers: Told of each commit, after it.
    """

    def __init__(
        self,
        directory: SweepDirectory,
        workload: Workload[Any],
        study: Study,
        writer: LedgerWriter,
        pool: Pool,
        *,
        pack_size: int | None,
        max_failures: int | None = None,
        followers: tuple[Follower, ...],
    ) -> None:
        self._directory = directory
        self._spec = directory.spec
        self._workload = workload
        self._study = study
        self._writer = writer
        self._pool = pool
        self._sizers: dict[Shape, PackSizer] = defaultdict(lambda: PackSizer(pack_size))
        self._max_failures = float("inf") if max_failures is None else max_failures
        self._followers = followers
        self._backlog = Backlog()
        self._retries: list[PackOrder] = []
        self._checkpoints = Checkpoints(directory.path, directory.environment)
        self._environment = directory.environment
        self._losses: dict[str, int] = {}
        self._n_losses_in_a_row = 0
        self._steps: dict[str, int] = {}
        self._tallies: dict[int, _Tally] = {}
        self._n_trained, self._n_failed, self._n_told = 0, 0, 0

    def take_up(self, rows: pa.Table) -> Found:
        """Goes on from an earlier run: tells the trials whose rows (all the ledger's) are complete, queues the rest.

        A trial that was told and has lost rows, because a damaged file was set aside, is trained again and not told. A
        checkpoint of other versions or code is dropped: a row is of one environment.
        """
        complete = set(complete_among(rows, self._spec.replicates))
        by_trial: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in rows.filter(~pa.compute.field("trial").isin(sorted(complete))).to_pylist():
            by_trial[row["trial"]].append(row)
        for asked in self._study.asked():
            if not (asked.is_told and asked.trial in complete):
                done = by_trial[asked.trial]
                if asked.trial in complete:
                    done = rows.filter(pa.compute.field("trial") == asked.trial).to_pylist()
                self._enter(self._study.configuration(asked.trial), done, is_told=asked.is_told)
        n_queued = len(self._backlog)
        for saved in self._checkpoints.load():
            is_of_now = saved.environment == self._environment
            if is_of_now and (tasks := self._backlog.take_these(saved.lanes)) is not None:
                self._retries.append(PackOrder(saved.pack, tasks, saved.state))
            else:
                self._checkpoints.remove(saved.pack)
        n_from_checkpoint = sum(len(order.tasks) for order in self._retries)
        return Found(rows.num_rows, self._n_told, n_queued, n_from_checkpoint)

    def run(self, should_stop: Callable[[], bool]) -> bool:
        """Trains until the budget is spent, or `should_stop` says so; then packs under way are handed back.

        Args:
            should_stop: Asked about twice a second.

        Returns:
            Whether the budget is spent.

        Raises:
            SweepError: If trainers keep being lost, too many trainings fail, or nothing but failures comes in.
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
        for order, report in self._pool.hand_back(HAND_BACK_SECONDS):
            self._receive(order, report)
        return False

    @property
    def n_asked(self) -> int:
        """Trials asked for so far, by earlier runs too."""
        return self._study.n_asked

    def under_way(self) -> list[PackUnderWay]:
        """The packs being trained."""
        return [
            PackUnderWay(
                pack=order.pack,
                n_trainings=len(order.tasks),
                step=self._steps.get(order.pack, 0),
                n_steps=order.tasks[0].training.parameters.n_steps,
            )
            for order in self._pool.running
        ]

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

    def _enter(
        self, configuration: Configuration, done: Sequence[dict[str, Any]] = (), *, is_told: bool = False
    ) -> None:
        """Queues a trial's trainings but for those whose rows are there."""
        tally = self._tallies[configuration.trial] = _Tally(configuration, is_told)
        tally.rows = {row["replicate"]: row for row in done}
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
            self._backlog.add(self._tasks(tally.configuration, missing))
        tally.n_queued = wanted
        if len(tally.rows) < wanted:
            return
        trial = tally.configuration.trial
        del self._tallies[trial]
        if not tally.is_told:
            self._study.tell(trial, tally.value(self._spec.objective), len(tally.judged))
            self._n_told += 1
        for follower in self._followers:
            follower.trial_told(trial)

    def _tasks(self, configuration: Configuration, replicates: Sequence[int]) -> list[Task]:
        parameters = self._workload.parameters
        return tasks_of(self._directory, parameters, configuration.trial, configuration.values, replicates)

    def _receive(self, order: PackOrder, report: Report | TrainerLost) -> None:
        self._steps.pop(order.pack, None)
        match report:
            case Progress():
                self._steps[order.pack] = report.step
                self._keep(order, report.checkpoint)
            case HandedBack():
                self._keep(order, report.checkpoint)
                self._retries.append(self._from_checkpoint(order))
            case Trained():
                self._n_trained += len(order.tasks)
                if order.checkpoint is None:
                    speed = report.lane_steps / report.seconds
                    self._sizers[order.tasks[0].shape].measured(len(order.tasks), speed)
                self._commit(order, report.trainings, report.curves, report.heads)
            case Raised():
                if report.out_of_memory:
                    self._sizers[order.tasks[0].shape].out_of_memory(len(order.tasks))
                self._isolate(order, report)
            case TrainerLost():
                self._again(order, report)

    def _isolate(self, order: PackOrder, report: Raised) -> None:
        """Splits a pack that raised, down to the lane at fault, whose row says `failed`."""
        if len(order.tasks) > 1:
            self._split(order)
            return
        context = PackContext(self._directory.sweep, order.pack, report.device, report.host)
        self._fail(order, report.error, context)
        if self._n_trained == 0 and self._n_failed >= MAX_FAILURES_AT_FIRST:
            message = f"the first {self._n_failed} trainings all raised; the last:\n{report.error}"
            raise SweepError(message, self._directory.path)

    def _again(self, order: PackOrder, lost: TrainerLost) -> None:
        """Trains a pack again whose trainer was lost, with its machine or by what the pack did to it."""
        self._n_losses_in_a_row += 1
        if self._n_losses_in_a_row > MAX_LOSSES_IN_A_ROW + 4 * self._pool.n_trainers:
            message = f"{self._n_losses_in_a_row} trainers were lost and no pack got further; the last: {lost.reason}"
            raise SweepError(message, self._directory.path)
        n_losses = self._losses[order.pack] = self._losses.get(order.pack, 0) + 1
        if len(order.tasks) > 1 and (lost.out_of_memory or n_losses > MAX_LOSSES):
            if lost.out_of_memory:
                self._sizers[order.tasks[0].shape].out_of_memory(len(order.tasks))
            self._split(order)
        elif n_losses > MAX_LOSSES_ALONE:
            error = (
                f"its trainer was lost {n_losses} times while it was trained by itself; the last time: {lost.reason}"
            )
            self._fail(order, error, PackContext(self._directory.sweep, order.pack))
        else:
            self._retries.append(self._from_checkpoint(order))

    def _split(self, order: PackOrder) -> None:
        half = len(order.tasks) // 2
        self._checkpoints.remove(order.pack)
        self._losses.pop(order.pack, None)
        self._retries.append(PackOrder(f"{order.pack}a", order.tasks[:half]))
        self._retries.append(PackOrder(f"{order.pack}b", order.tasks[half:]))

    def _keep(self, order: PackOrder, state: bytes | None) -> None:
        if state is not None:
            self._writer.confirm()
            # A checkpoint of trials that the study lacks would be dropped at `resume`.
            self._study.save()
            self._checkpoints.put(order, state)
            self._forgive(order.pack)

    def _forgive(self, pack: str) -> None:
        """Forgets losses: a pack that gets further is not what they came from."""
        self._losses.pop(pack, None)
        self._n_losses_in_a_row = 0

    def _from_checkpoint(self, order: PackOrder) -> PackOrder:
        return PackOrder(order.pack, order.tasks, self._checkpoints.latest(order.pack))

    def _fail(self, order: PackOrder, error: str, context: PackContext) -> None:
        self._commit(order, failed_rows(self._workload, order.tasks, error, context), None, None)
        self._n_failed += 1
        if self._n_failed > self._max_failures:
            message = (
                f"{self._n_failed} trainings failed, more than --max-failures {self._max_failures}; the last:\n{error}"
            )
            raise SweepError(message, self._directory.path)

    def _commit(self, order: PackOrder, trainings: pa.Table, curves: pa.Table | None, heads: pa.Table | None) -> None:
        self._writer.confirm()
        # A trial that the ledger knows must not be asked for again: the study is durable before its rows are.
        self._study.save()
        self._writer.commit(order.pack, in_environment(trainings, self._environment), curves, heads)
        self._checkpoints.remove(order.pack)
        self._forgive(order.pack)
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
