"""The main loop of a sweep: draws trials, gives packs to trainers, commits results, tells values to the study.

It runs in one thread, the only writer of study and ledger. Decisions that need neither are in `SweepPlan`.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.running.checkpoints import Checkpoints
from attnsweep.orchestrator.running.plan import (
    Action,
    Backlog,
    Fail,
    Forget,
    PackSizer,
    Shrink,
    Stop,
    SweepPlan,
)
from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.running.trials import OpenTrials, Pruning
from attnsweep.orchestrator.storage.errors import PoolError, SweepError
from attnsweep.orchestrator.storage.run_records import PackUnderWay
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.messages import (
    HandedBack,
    PackOrder,
    Pool,
    Probed,
    Raised,
    Report,
    Rows,
    StillTraining,
    Trained,
    TrainerLost,
)
from attnsweep.orchestrator.training.rows import PackContext, failed_rows, joined
from attnsweep.orchestrator.training.tasks import Shape
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.workloads.engine.contract import Workload

HAND_BACK_SECONDS = 3.5
"""How long a stop waits for unfinished packs; MLflow gets the rest of `STOP_SECONDS`."""
_WAIT_SECONDS = 0.5
_ASK_SECONDS = 0.05
"""How long the loop draws trials before it reads reports again. Trainers with a report wait until then."""
_COMMIT_SECONDS = 1.0
"""The longest that packs that have ended wait for others before all are committed. A killed driver loses them."""
_COMMIT_TRAININGS = 2048
"""So many ended trainings are committed without waiting, so that their rows do not stay in memory."""


Follower: TypeAlias = Callable[[Sequence[int], pa.Table | None], object]
"""Called after a commit with the trials that have ended, which the study has been told, and with the new rows; `None`
for trials of earlier runs."""


class Found(NamedTuple):
    """Trainings of earlier runs: in the ledger; drawn but not in it; of the latter, those in checkpoints."""

    n_kept: int
    n_begun: int
    n_from_checkpoint: int


@dataclass
class _UnderWay:
    machine: str
    reached: StillTraining | Probed = field(default_factory=lambda: StillTraining(0))

    def shown(self, order: PackOrder) -> PackUnderWay:
        return PackUnderWay(
            pack=order.pack,
            n_trainings=len(order.tasks),
            step=self.reached.step,
            n_steps=order.tasks[0].training.parameters.n_steps,
            n_running=self.reached.n_running,
            where=self.reached.where,
            metric=self.reached.metric,
        )


class SweepLoop:
    """Trains one sweep, from `resume` to the end of `run`.

    Args:
        pack_size: `None` searches for the fastest.
        max_failures: Trainings that may fail in this run; `None` for any number.

    Attributes:
        directory: With the newest content of its `sweep.json`.
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
        follower: Follower = lambda *_: None,
    ) -> None:
        self.directory, self._workload = directory, workload
        self._study, self._writer, self._pool, self._follower = study, writer, pool, follower
        self._plan = SweepPlan(Backlog(keeps_trials=directory.spec.pruner is not None), max_failures)
        self._sizers: dict[tuple[str, Shape], PackSizer] = {}  # by type of machine and shape
        self._pack_size = pack_size
        self._trials = OpenTrials(directory, workload, study, self._plan.backlog)
        self._pruning = Pruning(directory.spec, study)
        self._checkpoints = Checkpoints(directory.place)
        self._environments: dict[str, str | None] = {}  # ids by type of machine
        self._may_ask = True
        self._under_way: dict[str, _UnderWay] = {}  # by pack
        self._ended: list[tuple[PackOrder, Rows]] = []
        self._committed = 0.0

    def resume(self, rows: pa.Table) -> Found:
        """Continues from the ledger's rows, or begins the sweep if there are none."""
        self._pruning.close(rows["trial"].unique().to_pylist())
        checkpoints = self._checkpoints.load()
        trained = {trial for saved in checkpoints for trial, _ in saved.lanes}
        self._follower(self._trials.restore(rows, trained), None)
        n_begun = len(self._plan.backlog)
        environments = self.directory.alike or {None}
        n_from_checkpoint, dropped = self._plan.restore(checkpoints, environments)
        self._do(dropped)
        return Found(rows.num_rows, n_begun, n_from_checkpoint)

    def run(self, should_stop: Callable[[], bool]) -> bool:
        """Trains until the budget is spent or results end the sweep (true), or `should_stop` holds (false).

        Raises SweepError if trainers keep being lost or too many trainings fail, PoolError if the pool cannot go on."""
        try:
            return self._train(should_stop)
        except (SweepError, PoolError):
            self._commit_ended()
            raise

    def under_way(self) -> list[PackUnderWay]:
        ended = [
            _UnderWay("", StillTraining(order.tasks[0].training.parameters.n_steps, n_running=0)).shown(order)
            for order, _ in self._ended
        ]
        return [self._under_way[order.pack].shown(order) for order in self._pool.running] + ended

    def _train(self, should_stop: Callable[[], bool]) -> bool:
        seconds_left = (self.directory.spec.seconds or float("inf")) - self.directory.progress.seconds
        deadline = time.monotonic() + seconds_left
        while not should_stop():
            # The first trials are drawn even if starting a trainer has taken all of the sweep's time limit.
            self._may_ask = time.monotonic() < deadline or self._study.n_asked == 0
            if self._study.learns or self.directory.spec.ends_early:
                self._commit_due()
            is_asking = self._hand_out()
            # After trainers got their next packs, so that they work meanwhile.
            if self._commit_due() and not is_asking:
                # The commit may have taken seconds, or its results may require further replicates.
                continue
            if not (self._pool.running or self._plan.has_work or self._n_to_ask):
                return True
            for order, report in self._pool.reports(0.0 if is_asking else _WAIT_SECONDS):
                self._receive(order, report)
        for order, report in self._pool.hand_back(HAND_BACK_SECONDS):
            self._receive(order, report)
        self._commit_ended()
        return False

    @property
    def end_reason(self) -> str:
        """Why results have ended the sweep before its budget was spent; empty if they have not."""
        return self._trials.early_end.reason

    @property
    def _n_to_ask(self) -> int:
        if self.end_reason:
            return 0
        return self._study.n_to_draw(self._pool.n_trainers, self._trials.still_open) if self._may_ask else 0

    @property
    def _fair_share(self) -> int:
        n_to_come = self._n_to_ask * n_wanted(self.directory.spec.replicates, {})
        return self._plan.fair_share(n_to_come, self._pool.n_trainers)

    def _hand_out(self) -> bool:
        """Whether the time for drawing trials was up before every idle trainer had a pack."""
        until = time.monotonic() + _ASK_SECONDS
        while self._pool.idle:
            first = self._pool.idle[0]
            order = self._plan.pack_to_continue()
            if order is None:
                sizer, backlog = partial(self._sizer, first), self._plan.backlog
                # A sampler that learns draws a whole group before any of its trials is trained, so that the draws do
                # not depend on which of them end first.
                while self._n_to_ask and (self._study.learns or not backlog.has_full_pack(sizer, self._fair_share)):
                    self._trials.ask()
                    if time.monotonic() >= until:
                        return True
                order = self._plan.new_pack(sizer, self._fair_share)
            if order is None:
                return False
            machine = self._machine_for(order.pack)
            environment = self._environment_on(machine)
            state = self._checkpoints.latest(order.pack, environment)
            order = replace(order, checkpoint=state, machine=machine, environment=environment)
            self._plan.n_under_way += len(order.tasks)
            self._under_way[order.pack] = _UnderWay(first)
            self._pool.train(self._pruning.prepared(order))
        return False

    def _machine_for(self, pack: str) -> str:
        begun = self.directory.environment_of(self._checkpoints.environment_of(pack)).machine
        return begun if begun is not None and begun in self._pool.idle else self._pool.idle[0]

    def _environment_on(self, machine: str) -> str | None:
        if machine not in self._environments:
            latest = self.directory.environments.get(self.directory.environment or "")
            on_machine = latest and latest.on(machine)
            if on_machine and on_machine.id not in self.directory.environments:
                self._writer.confirm()
                changed = self.directory.beside(on_machine)
                self.directory.record_as(changed)
                self.directory = changed
            self._environments[machine] = on_machine.id if on_machine else None
        return self._environments[machine]

    def _sizer(self, machine: str, shape: Shape) -> PackSizer:
        return self._sizers.setdefault((machine, shape), PackSizer(self._pack_size))

    def _sizer_of(self, order: PackOrder) -> PackSizer:
        return self._sizer(self._under_way[order.pack].machine, order.shape)

    def _receive(self, order: PackOrder, report: Report | TrainerLost) -> None:
        if isinstance(report, StillTraining | Probed):
            self._under_way[order.pack].reached = report
            pruned = self._pruning.answer(order, report) if isinstance(report, Probed) else []
            self._checkpoint(order, report.checkpoint)
            if isinstance(report, Probed):
                self._pool.answer(order, pruned)
            return
        self._plan.n_under_way -= len(order.tasks)
        match report:
            case HandedBack():
                self._checkpoint(order, report.checkpoint)
                self._plan.handed_back(order)
            case Trained():
                self._plan.trained(order)
                if order.checkpoint is None:
                    self._sizer_of(order).measured(len(order.tasks), report.lane_steps / report.seconds)
                self._ended.append((order, report.rows))
            case Raised():
                self._do(self._plan.raised(order, report))
            case TrainerLost():
                self._do(self._plan.lost(order, report, self._pool.n_trainers))
        del self._under_way[order.pack]

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Fail(order):
                    environment = order.environment or self.directory.environment
                    context = PackContext(self.directory.sweep, order.pack, action.device, action.host, environment)
                    self._pruning.close(task.trial for task in order.tasks)
                    self._ended.append((order, failed_rows(self._workload, order.tasks, action.error, context)))
                case Forget(pack):
                    self._checkpoints.remove(pack)
                case Shrink(order):
                    self._sizer_of(order).out_of_memory(len(order.tasks))
                case Stop(reason):
                    raise SweepError(reason, self.directory.place)

    def _checkpoint(self, order: PackOrder, state: bytes | None) -> None:
        if state is None:
            return
        self._writer.confirm()
        # First, because the state follows the study's draws and the pruner's decisions.
        self._study.save()
        self._checkpoints.put(order, state)
        self._plan.got_further(order.pack)

    def _commit_due(self) -> bool:
        is_due = bool(self._ended) and (
            4 * len(self._ended) >= self._pool.n_trainers
            or time.monotonic() - self._committed > _COMMIT_SECONDS
            or sum(len(order.tasks) for order, _ in self._ended) >= _COMMIT_TRAININGS
            or not self._pool.running
        )
        if is_due:
            self._commit_ended()
        return is_due

    def _commit_ended(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            self._commit([order.pack for order, _ in ended], joined([rows for _, rows in ended]))
            self._committed = time.monotonic()

    def _commit(self, packs: Sequence[str], rows: Rows) -> None:
        self._writer.confirm()
        # First, because the rows follow the study's draws and the pruner's decisions.
        self._study.save()
        every = self.directory.spec.one_probe_in()
        self._writer.commit(packs[0], rows.trainings, rows.curves, rows.heads, curves_every=every)
        for pack in packs:
            self._checkpoints.remove(pack)
            self._plan.got_further(pack)
        self._follower(self._trials.count(rows.trainings), rows.trainings)
