"""Decides which trainings make the next pack, and what happens to a pack that comes back from a trainer.

Plain state in, actions out: no disk, no clock, and no library except what describes a training.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from attnsweep.orchestrator.training.messages import PackOrder, Raised, TrainerLost
from attnsweep.orchestrator.training.tasks import Shape, Task

if TYPE_CHECKING:
    from attnsweep.orchestrator.running.checkpoints import Saved

MAX_LOSSES = 2
"""How often a pack may lose its trainer without progress. Then it is split: one training may be the cause."""
MAX_LOSSES_ALONE = 5
"""The same of a lone training, which is then recorded as failed."""
MAX_LOSSES_IN_A_ROW = 16
"""The sweep stops after more losses than these, plus four per trainer, without progress of any pack."""
MAX_FAILURES_AT_FIRST = 16
"""The sweep stops if so many trainings raise before any succeeds."""


class PackSizer:
    """Finds the fastest size of packs by measurement: doubles it as long as this raises the steps per second.

    A size that did not fit into memory is halved.

    Attributes:
        rates: Steps per second, summed over lanes, by pack size.
        limit: The largest size that a pack may have.
    """

    smallest, largest = 64, 4096
    _min_gain = 1.05
    """Doubling goes on while it raises the rate by this factor."""
    _max_last = 1.5
    """The last pack may be this many times as large as the others."""
    _min_fill = 0.75
    """A pack is a measurement of the wanted size from this share of it on."""

    def __init__(self, fixed: int | None) -> None:
        self._fixed = fixed
        self.rates: dict[int, float] = {}
        self.limit = fixed or self.largest

    def size(self, fair_share: int) -> int:
        """A pack above `fair_share` would idle another trainer."""
        if self._fixed is not None:
            return self.limit
        wanted = self._wanted()
        # A second, small pack would take nearly as long as a full one.
        is_last = fair_share <= min(self._max_last * wanted, self.limit)
        return max(fair_share if is_last else wanted, 1)

    def measured(self, n_lanes: int, lane_steps_per_second: float) -> None:
        """Ignores a pack that is not of about the size to measure next."""
        wanted = self._wanted()
        if not self._min_fill * wanted <= n_lanes <= wanted:
            return
        best_smaller = max((rate for size, rate in self.rates.items() if size < wanted), default=0.0)
        # A small gain is recorded as none, so that the search ends.
        gains = lane_steps_per_second > self._min_gain * best_smaller
        self.rates[wanted] = lane_steps_per_second if gains else min(lane_steps_per_second, best_smaller)

    def out_of_memory(self, n_lanes: int) -> None:
        self.limit = min(self.limit, max(n_lanes // 2, 1))

    def _wanted(self) -> int:
        if not self.rates:
            return min(self.smallest, self.limit)
        best = max(self.rates, key=lambda size: self.rates[size])
        larger = 2 * best if best == max(self.rates) else best
        return larger if larger <= self.limit else min(best, self.limit)


SizerOf: TypeAlias = Callable[[Shape], PackSizer]
"""By shape, for the trainer that takes the next pack."""


class Backlog:
    """Trainings that wait for a trainer, by shape. With `keeps_trials` a pack ends with a whole trial, unless that is
    larger than the pack."""

    def __init__(self, *, keeps_trials: bool = False) -> None:
        self._keeps_trials = keeps_trials
        self._by_shape: dict[Shape, list[Task]] = defaultdict(list)

    def __len__(self) -> int:
        return sum(len(tasks) for tasks in self._by_shape.values())

    def add(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._by_shape[task.shape].append(task)

    def has_full_pack(self, sizer: SizerOf, fair_share: int) -> bool:
        shape = self._fullest
        return shape is not None and len(self._by_shape[shape]) >= sizer(shape).size(fair_share)

    def take_pack(self, sizer: SizerOf, fair_share: int) -> list[Task]:
        """Takes the oldest of the shape with the most trainings."""
        shape = self._fullest
        if shape is None:
            return []
        n_lanes = sizer(shape).size(fair_share)
        waiting = self._by_shape.pop(shape)
        if len(waiting) > n_lanes:
            n_lanes = self._whole_trials(waiting, n_lanes)
            self._by_shape[shape] = waiting[n_lanes:]
        return waiting[:n_lanes]

    def take_lanes(self, lanes: Sequence[tuple[int, int]]) -> list[Task] | None:
        """Takes the given (trial, replicate) in this order; `None` if any of them is not waiting."""
        waiting = {(task.trial, task.replicate): task for tasks in self._by_shape.values() for task in tasks}
        if not lanes or any(lane not in waiting for lane in lanes):
            return None
        taken = [waiting[lane] for lane in lanes]
        chosen = set(lanes)
        for shape in {task.shape for task in taken}:
            remaining = [task for task in self._by_shape.pop(shape) if (task.trial, task.replicate) not in chosen]
            if remaining:
                self._by_shape[shape] = remaining
        return taken

    def _whole_trials(self, waiting: Sequence[Task], n_lanes: int) -> int:
        ends = (n for n in range(n_lanes, 0, -1) if waiting[n - 1].trial != waiting[n].trial)
        return next(ends, n_lanes) if self._keeps_trials else n_lanes

    @property
    def _fullest(self) -> Shape | None:
        return max(self._by_shape, key=lambda shape: len(self._by_shape[shape]), default=None)


@dataclass(frozen=True)
class Fail:
    """Record the pack's only training as failed."""

    order: PackOrder
    error: str
    device: str | None = None
    host: str | None = None


@dataclass(frozen=True)
class Forget:
    """Remove the checkpoint of a pack that will not be continued from it."""

    pack: str


@dataclass(frozen=True)
class Shrink:
    """Train this pack's shape in smaller packs from now on: it ran out of memory."""

    order: PackOrder


@dataclass(frozen=True)
class Stop:
    """End the sweep with an error, whose message is `reason`."""

    reason: str


Action: TypeAlias = Fail | Forget | Shrink | Stop


class SweepPlan:
    """Decides which pack is trained next, and whether one that comes back goes on, is split, or has failed.

    Attributes:
        n_under_way: Trainings in packs that trainers have.
    """

    def __init__(self, backlog: Backlog, max_failures: int | None = None) -> None:
        self.backlog = backlog
        self.n_under_way = 0
        self._max_failures = float("inf") if max_failures is None else max_failures
        self._to_continue: list[PackOrder] = []
        self._losses: dict[str, int] = {}  # of trainers without progress, by pack
        self._n_losses_in_a_row = self._n_trained = self._n_failed = 0

    @property
    def has_work(self) -> bool:
        return bool(self._to_continue or self.backlog)

    def restore(self, checkpoints: "Iterable[Saved]", environments: Collection[str | None]) -> tuple[int, list[Forget]]:
        """Queues an earlier run's packs in place of their trainings in the backlog. Returns the number of these
        trainings, and the checkpoints to remove: of other environments, or of trainings that are not in the backlog."""
        dropped = []
        for saved in checkpoints:
            tasks = self.backlog.take_lanes(saved.lanes) if saved.environment in environments else None
            if tasks is None:
                dropped.append(Forget(saved.pack))
            else:
                self._to_continue.append(PackOrder(saved.pack, tasks))
        return sum(len(order.tasks) for order in self._to_continue), dropped

    def fair_share(self, n_to_come: int, n_trainers: int) -> int:
        """Trainings left per trainer: waiting, in training, and `n_to_come` of trials not drawn yet."""
        return -(-(len(self.backlog) + n_to_come + self.n_under_way) // n_trainers)

    def pack_to_continue(self) -> PackOrder | None:
        """Takes the pack that has waited longest to be continued."""
        return self._to_continue.pop(0) if self._to_continue else None

    def new_pack(self, sizer: SizerOf, fair_share: int) -> PackOrder | None:
        tasks = self.backlog.take_pack(sizer, fair_share)
        if not tasks:
            return None
        return PackOrder(f"{tasks[0].trial:06d}-{tasks[0].replicate:04d}-{len(tasks)}", tasks)

    def got_further(self, pack: str) -> None:
        """Called once a pack's progress is durable; resets the counts of lost trainers, the pack's and the run's."""
        self._losses.pop(pack, None)
        self._n_losses_in_a_row = 0

    def handed_back(self, order: PackOrder) -> None:
        self._to_continue.append(replace(order, checkpoint=None))

    def trained(self, order: PackOrder) -> None:
        self._n_trained += len(order.tasks)

    def raised(self, order: PackOrder, report: Raised) -> list[Action]:
        """Halves a pack that raised, until the faulty training is alone and is recorded as failed."""
        shrink: list[Action] = [Shrink(order)] if report.out_of_memory else []
        if len(order.tasks) > 1:
            return [*shrink, self._split(order)]
        failed = self._failed(Fail(order, report.error, report.device, report.host))
        if self._n_trained == 0 and self._n_failed >= MAX_FAILURES_AT_FIRST:
            failed.append(Stop(f"the first {self._n_failed} trainings all raised; the last:\n{report.error}"))
        return [*shrink, *failed]

    def lost(self, order: PackOrder, lost: TrainerLost, n_trainers: int) -> list[Action]:
        """Continues a pack whose trainer has died, or splits it if it lacks memory or has lost several trainers.

        The pack itself may be the cause: a lone training fails at last, and the sweep ends if nothing gets on.
        """
        self._n_losses_in_a_row += 1
        n_losses = self._losses[order.pack] = self._losses.get(order.pack, 0) + 1
        if (n := self._n_losses_in_a_row) > MAX_LOSSES_IN_A_ROW + 4 * n_trainers:
            return [Stop(f"{n} trainers were lost without progress of any pack; the last: {lost.reason}")]
        if len(order.tasks) > 1 and (lost.out_of_memory or n_losses > MAX_LOSSES):
            return [*([Shrink(order)] if lost.out_of_memory else []), self._split(order)]
        if n_losses > MAX_LOSSES_ALONE:
            error = f"the training lost its trainer {n_losses} times while it was alone in its pack; the last time: "
            return self._failed(Fail(order, error + lost.reason))
        self.handed_back(order)
        return []

    def _split(self, order: PackOrder) -> Forget:
        self._losses.pop(order.pack, None)
        half = len(order.tasks) // 2
        self._to_continue.append(PackOrder(f"{order.pack}a", order.tasks[:half]))
        self._to_continue.append(PackOrder(f"{order.pack}b", order.tasks[half:]))
        return Forget(order.pack)

    def _failed(self, fail: Fail) -> list[Action]:
        self._n_failed += 1
        if self._n_failed <= self._max_failures:
            return [fail]
        limit = f"more than --max-failures {self._max_failures}"
        return [fail, Stop(f"{self._n_failed} trainings failed, {limit}; the last:\n{fail.error}")]
