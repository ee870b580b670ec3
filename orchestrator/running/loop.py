"""The sweep loop: ask, pack, train, commit, tell, project. One thread, the only writer of study and ledger."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.running.backlog import Backlog, SizerOf
from attnsweep.orchestrator.running.checkpoints import Checkpoints
from attnsweep.orchestrator.running.pack_sizes import PackSizer, PackSizes
from attnsweep.orchestrator.running.pruning import Pruning
from attnsweep.orchestrator.running.retries import Retries
from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.running.trials import OpenTrials
from attnsweep.orchestrator.running.under_way import pack_under_way
from attnsweep.orchestrator.storage.errors import PoolError, SweepError
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.storage.whereabouts import PackUnderWay
from attnsweep.orchestrator.training.messages import (
    HandedBack,
    PackOrder,
    Probed,
    Progress,
    Raised,
    Report,
    Reports,
    Rows,
    RunContext,
    Trained,
    TrainerLost,
)
from attnsweep.orchestrator.training.pool import Pool
from attnsweep.orchestrator.training.rows import PackContext, failed_rows, joined
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.workloads.engine.contract import Workload

MAX_LOSSES = 2
"""How often a pack may lose its trainer without progress. Then the pack is split: one lane may be the cause."""
MAX_LOSSES_ALONE = 5
"""The same for a pack of one training, which is then recorded as failed."""
MAX_LOSSES_IN_A_ROW = 16
"""Trainers that may be lost without progress of any pack, plus four for each trainer, before the sweep stops."""
MAX_FAILURES_AT_FIRST = 16
"""Trainings that may raise before any training succeeds. If all raise, the sweep stops: more would only cost time."""
HAND_BACK_SECONDS = 3.5
"""How long a stop waits for unfinished packs: a trainer answers once its slice is over. MLflow gets the rest of
`STOP_SECONDS`."""
_WAIT_SECONDS = 0.5
_ASK_SECONDS = 0.05
"""How long the loop asks for trials before it looks at reports again. Trainers with a report wait for that look."""
_COMMIT_SECONDS = 1.0
"""How long packs that have ended wait for further ones before they are committed. A killed driver loses as much."""
_COMMIT_SHARE = 4
"""The packs of a quarter of the trainers do not wait, unless trainers wait for trials. One commit of many packs costs
hardly more than one of a single pack."""

_COMMIT_TRAININGS = 2048
"""So many trainings that have ended do not wait either: their rows are in memory."""


class Follower(Protocol):
    """An observer of the loop, such as the progress display or the MLflow projection."""

    def rows_committed(self, trainings: pa.Table) -> None:
        """Rows have reached the ledger, and the trials they complete are told."""

    def trial_told(self, trial: int) -> None:
        """All trainings of a trial are in the ledger, and the study knows its value."""


@dataclass(frozen=True, slots=True)
class Found:
    """The state that an earlier run left.

    Attributes:
        n_kept: Trainings whose rows are in the ledger.
        n_told: Trials with complete rows that the study had not been told; they are told now.
        n_queued: Trainings to train, again or for the first time.
        n_from_checkpoint: Those of them that continue from a checkpoint.
    """

    n_kept: int
    n_told: int
    n_queued: int
    n_from_checkpoint: int


class SweepLoop:
    """Runs one sweep to its end.

    Args:
        directory: The sweep.
        workload: Its problem.
        study: The source of trials.
        writer: The ledger's writer.
        pool: The trainers.
        pack_size: Trainings in a pack; `None` finds the fastest size.
        max_failures: Trainings that may fail in this run; `None` for any number.
        followers: Informed after each commit.
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
        self._workload = workload
        self._study = study
        self._writer = writer
        self._pool = pool
        self._max_failures = float("inf") if max_failures is None else max_failures
        self._followers = followers
        self._backlog = Backlog(keeps_trials=directory.spec.pruner is not None)
        self._sizes = PackSizes.of_sweep(pack_size, directory, learns=study.learns)
        self._first_pack = pack_size or PackSizer.smallest
        self._trials_per_pack = -(-self._first_pack // n_wanted(directory.spec.replicates, {}))
        self._trials = OpenTrials(directory, workload, study, self._backlog)
        self._pruning = Pruning(directory.spec, study)
        self._retries = Retries(Checkpoints(directory.place, directory.environment))
        self._may_ask = True
        self._reached: dict[str, Progress | Probed] = {}
        self._accelerators: dict[str, str] = {}
        self._n_trained, self._n_failed, self._n_under_way = 0, 0, 0
        self._ended: list[tuple[PackOrder, Rows]] = []
        self._committed = 0.0

    def resume(self, rows: pa.Table) -> Found:
        """Continues from an earlier run, or begins if there was none.

        Args:
            rows: All of the ledger's `trainings`.
        """
        self._pruning.begin(rows)
        self._inform(self._trials.restore(rows))
        n_queued = len(self._backlog)
        n_from_checkpoint = self._retries.restore(self._backlog, self._directory.environment)
        return Found(rows.num_rows, self._trials.n_told, n_queued, n_from_checkpoint)

    def run(self, should_stop: Callable[[], bool]) -> bool:
        """Trains until the budget is spent or `should_stop` says so; then packs under way are handed back.

        Args:
            should_stop: Asked about twice a second.

        Returns:
            Whether the budget is spent.

        Raises:
            SweepError: If trainers keep being lost, too many trainings fail, or all of the first ones raise.
        """
        try:
            return self._train(should_stop)
        except (SweepError, PoolError):
            # Packs that have ended have ended all the same.
            self._commit_ended()
            raise
        finally:
            self._sizes.save_for_user()

    @property
    def n_asked(self) -> int:
        """Trials asked for so far, including by earlier runs."""
        return self._study.n_asked

    def under_way(self) -> list[PackUnderWay]:
        """The packs being trained."""
        return [pack_under_way(order, self._reached.get(order.pack)) for order in self._pool.running]

    def _train(self, should_stop: Callable[[], bool]) -> bool:
        seconds_left = (self._directory.spec.seconds or float("inf")) - self._directory.seconds_spent
        deadline = time.monotonic() + seconds_left
        is_asking = False
        while not should_stop():
            # The first trials are asked for even if Ray took all the time to start the first trainer.
            self._may_ask = time.monotonic() < deadline or self._study.n_asked == 0
            if self._study.learns:
                self._commit_due(is_asking)
            is_asking = self._hand_out()
            # Trainers have their next packs while the rows of the last ones are written.
            if self._commit_due(is_asking) and not is_asking:
                # That may have taken seconds, or made further replicates wanted.
                continue
            if not self._pool.running and not self._has_work:
                return True
            is_late = is_asking or self._ask_ahead()
            self._receive_all(self._pool.reports(0.0 if is_late else _WAIT_SECONDS))
        self._receive_all(self._pool.hand_back(HAND_BACK_SECONDS))
        self._commit_ended()
        return False

    @property
    def _n_to_ask(self) -> int:
        """Trials that may still be asked for."""
        return self._study.n_left if self._may_ask else 0

    @property
    def _has_work(self) -> bool:
        return bool(self._retries or self._backlog or self._n_to_ask)

    @property
    def _fair_share(self) -> int:
        """Trainings queued, under way or still to be asked for, per trainer; of new trials, their first replicates."""
        to_come = self._n_to_ask * n_wanted(self._directory.spec.replicates, {})
        return -(-(len(self._backlog) + to_come + self._n_under_way) // self._pool.n_trainers)

    def _hand_out(self) -> bool:
        """Gives packs to idle trainers; returns whether time ran out while trials were asked for."""
        until = time.monotonic() + _ASK_SECONDS
        while self._pool.has_idle:
            accelerator = self._pool.accelerator
            order = self._retries.next()
            if order is None:
                sizer = partial(self._sizes.sizer, accelerator)
                if not self._fill_pack(sizer, until):
                    return True
                order = self._new_pack(sizer)
            if order is None:
                return False
            self._n_under_way += len(order.tasks)
            self._accelerators[order.pack] = accelerator
            self._pool.train(self._pruning.prepared(order))
        return False

    def _fill_pack(self, sizer: SizerOf, until: float) -> bool:
        """Asks for trials until the backlog holds a full pack or none is left to ask; `False` if it is late by then."""
        while self._n_to_ask and not self._backlog.has_full_pack(sizer, self._fair_share):
            self._trials.ask(self._trials_per_pack)
            if time.monotonic() >= until:
                return False
        return True

    def _ask_ahead(self) -> bool:
        """Asks for as many trainings as are under way: trainers whose packs end together find their next ones waiting.

        While trainers start, for a first pack. Not where trials depend on how earlier ones ended, or on the time that
        is left.

        Returns:
            Whether time ran out.
        """
        if self._study.learns or self._directory.spec.seconds is not None:
            return False
        until = time.monotonic() + _ASK_SECONDS
        while self._n_to_ask and len(self._backlog) < (self._n_under_way or self._first_pack):
            self._trials.ask(self._trials_per_pack)
            if time.monotonic() >= until:
                return True
        return False

    def _new_pack(self, sizer: SizerOf) -> PackOrder | None:
        """A pack from the backlog; `None` where no training waits."""
        tasks = self._backlog.take_pack(sizer, self._fair_share)
        if not tasks:
            return None
        return PackOrder(f"{tasks[0].trial:06d}-{tasks[0].replicate:04d}-{len(tasks)}", tasks)

    def _sizer(self, order: PackOrder) -> PackSizer:
        """The sizer of packs as this one, on what trains it."""
        return self._sizes.sizer(self._accelerators[order.pack], order.shape)

    def _receive_all(self, reports: Reports) -> None:
        for order, report in reports:
            self._receive(order, report)

    def _receive(self, order: PackOrder, report: Report | TrainerLost) -> None:
        self._reached.pop(order.pack, None)
        if not isinstance(report, Progress | Probed):
            self._n_under_way -= len(order.tasks)
        match report:
            case Progress():
                self._reached[order.pack] = report
                self._checkpoint(order, report.checkpoint)
            case Probed():
                self._reached[order.pack] = report
                pruned = self._pruning.answer(order, report)
                self._checkpoint(order, report.checkpoint)
                self._pool.answer(order, pruned)
            case HandedBack():
                self._checkpoint(order, report.checkpoint)
                self._retries.again(order)
            case Trained():
                self._n_trained += len(order.tasks)
                self._sizes.trained(report.lane_steps)
                if order.checkpoint is None:
                    work = self._pruning.lane_steps(order, report)
                    self._sizer(order).measured(len(order.tasks), work / report.seconds, report.memory)
                self._ended.append((order, report.rows))
            case Raised():
                self._isolate(order, report)
            case TrainerLost():
                self._retry(order, report)
        if not isinstance(report, Progress | Probed):
            del self._accelerators[order.pack]

    def _isolate(self, order: PackOrder, report: Raised) -> None:
        """Splits a pack that raised, until the lane at fault is alone; its row then says `failed`."""
        if report.out_of_memory:
            self._sizer(order).out_of_memory(len(order.tasks))
        if len(order.tasks) > 1:
            self._retries.split(order)
            return
        self._fail(order, report.error, report.device, report.host)
        if self._n_trained == 0 and self._n_failed >= MAX_FAILURES_AT_FIRST:
            raise self._stopped(f"the first {self._n_failed} trainings all raised; the last:\n{report.error}")

    def _retry(self, order: PackOrder, lost: TrainerLost) -> None:
        """Queues a pack that has lost its trainer again. The cause may be the machine or the pack itself."""
        n_losses, in_a_row = self._retries.count_loss(order.pack), self._retries.n_losses_in_a_row
        if in_a_row > MAX_LOSSES_IN_A_ROW + 4 * self._pool.n_trainers:
            raise self._stopped(f"{in_a_row} trainers were lost and no pack got further; the last: {lost.reason}")
        if len(order.tasks) > 1 and (lost.out_of_memory or n_losses > MAX_LOSSES):
            if lost.out_of_memory:
                self._sizer(order).out_of_memory(len(order.tasks))
            self._retries.split(order)
        elif n_losses > MAX_LOSSES_ALONE:
            error = f"the training lost its trainer {n_losses} times while it was alone in its pack; the last time: "
            self._fail(order, error + lost.reason)
        else:
            self._retries.again(order)

    def _fail(self, order: PackOrder, error: str, device: str | None = None, host: str | None = None) -> None:
        run = RunContext(self._directory.sweep, self._directory.environment)
        context = PackContext.of(run, order.pack, device, host)
        self._pruning.close(task.trial for task in order.tasks)
        self._ended.append((order, failed_rows(self._workload, order.tasks, error, context)))
        self._n_failed += 1
        if self._n_failed > self._max_failures:
            limit = f"more than --max-failures {self._max_failures}"
            raise self._stopped(f"{self._n_failed} trainings failed, {limit}; the last:\n{error}")

    def _checkpoint(self, order: PackOrder, state: bytes | None) -> None:
        if state is None:
            return
        self._writer.confirm()
        # A checkpoint of trials that the study lacks would be dropped at `resume`.
        self._study.save()
        self._retries.checkpoint(order, state)

    def _commit_due(self, is_asking: bool) -> bool:
        """Commits the packs that have ended at once, unless they may wait for further ones; returns whether it did.

        Args:
            is_asking: Whether trainers wait for trials.
        """
        are_many = not is_asking and len(self._ended) * _COMMIT_SHARE >= self._pool.n_trainers
        are_large = sum(len(order.tasks) for order, _ in self._ended) >= _COMMIT_TRAININGS
        is_late = time.monotonic() - self._committed > _COMMIT_SECONDS
        is_due = bool(self._ended) and (are_many or are_large or is_late or not self._pool.running)
        if is_due:
            self._commit_ended()
        return is_due

    def _commit_ended(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            self._commit([order.pack for order, _ in ended], joined([rows for _, rows in ended]))
            self._sizes.save()
            self._committed = time.monotonic()

    def _commit(self, packs: Sequence[str], rows: Rows) -> None:
        """Makes the rows of packs one fragment of the ledger, then tells the trials that they complete."""
        self._writer.confirm()
        # The study is durable before the rows of its trials: a trial in the ledger must not be asked for again.
        self._study.save()
        self._writer.commit(packs[0], rows.trainings, rows.curves, rows.heads)
        for pack in packs:
            self._retries.finished(pack)
            self._retries.got_further(pack)
        self._inform(self._trials.count(rows.trainings), rows.trainings)

    def _inform(self, told: list[int], trainings: pa.Table | None = None) -> None:
        for follower in self._followers:
            for trial in told:
                follower.trial_told(trial)
            if trainings is not None:
                follower.rows_committed(trainings)

    def _stopped(self, message: str) -> SweepError:
        return SweepError(message, self._directory.place)
