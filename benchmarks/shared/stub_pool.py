"""A pool that trains nothing, on a simulated clock: its packs end as one real pack did, with other keys."""

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnsweep.orchestrator.training.messages import Hardware, PackOrder, Reports, Rows
    from attnsweep.workloads.engine.contract import Workload

RAY_WAIT_SECONDS_PER_TRAINER = 3e-7
RAY_REPORT_SECONDS = 2.2e-4
"""What `driver_scale.py --parts ray` measures, and the pool charges."""


class Clock:
    """The driver's CPU seconds, and those that it would have waited or spent in Ray."""

    def __init__(self) -> None:
        self.waited = self.outside = 0.0

    @property
    def spent(self) -> float:
        """CPU seconds of the driver, without the pool's own."""
        return time.process_time() - self.outside

    @property
    def now(self) -> float:
        """Simulated seconds."""
        return self.spent + self.waited


class StubPool:
    """A `Pool` whose packs take a given time of a simulated clock.

    Args:
        clock: Moves on where the driver would wait.
        rows: Those of a pack.
        trainers: How many.
        seconds: What a pack takes.
        slice_seconds: Between two reports of a pack; `None` for no report before its end.

    Attributes:
        first_report: When the loop took the first report.
    """

    waiting_for, machines = "", frozenset(("here",))

    def __init__(
        self,
        clock: Clock,
        rows: "RowsOfPacks",
        trainers: int,
        seconds: float = 0.0,
        slice_seconds: float | None = None,
    ) -> None:
        self.n_trainers = self.n_placed = trainers
        self.first_report: float | None = None
        self._starts: list[float] = []
        self._all_busy: float | None = None
        self._looked: float | None = None
        self._clock, self._rows, self._seconds, self._slice = clock, rows, seconds, slice_seconds
        self._running: dict[str, tuple[float, PackOrder]] = {}

    @property
    def has_idle(self) -> bool:
        """Whether a trainer has no pack."""
        return len(self._running) < self.n_trainers

    @property
    def idle(self) -> "list[Hardware]":
        """The hardware of a trainer without a pack."""
        from attnsweep.orchestrator.training.messages import Hardware

        return [Hardware("cpu", "here")] if self.has_idle else []

    @property
    def running(self) -> "list[PackOrder]":
        """The packs under way."""
        return [order for _, order in self._running.values()]

    def notices(self) -> list[str]:
        """Nothing happens to these trainers."""
        return []

    def train(self, order: "PackOrder") -> None:
        """Begins a pack."""
        now = self._clock.now
        self._starts.append(now)
        self._running[order.pack] = (now + self._seconds, order)
        if self._all_busy is None and not self.has_idle:
            self._all_busy = now

    def answer(self, order: "PackOrder", pruned: "Sequence[int]") -> None:
        """Never called: these packs wait at no probe."""
        raise NotImplementedError

    @property
    def busy(self) -> float:
        """Share of their time that trainers trained, from when all had a pack until the last pack was handed out."""
        assert self._all_busy is not None
        first, last = self._all_busy, self._starts[-1]
        trained = sum(max(min(each + self._seconds, last) - max(each, first), 0.0) for each in self._starts)
        return trained / (self.n_trainers * (last - first))

    def reports(self, timeout: float) -> "Reports":
        """The packs that have ended; where there is none, the clock moves on to the next end or the timeout."""
        from attnsweep.orchestrator.training.messages import Trained

        began = time.thread_time()
        clock = self._clock
        waited = RAY_WAIT_SECONDS_PER_TRAINER * len(self._running) if self._slice else 0.0
        now = clock.now + waited
        nearest = min((ends for ends, _ in self._running.values()), default=now)
        if nearest > now:
            waited += min(nearest - now, timeout)
            now = clock.now + waited
        ended = [order for ends, order in self._running.values() if ends <= now]
        if self._slice:
            # What their other slices have cost since the last look: reports that the loop would have taken meanwhile.
            elapsed = 0.0 if self._looked is None else now - self._looked
            self._looked = now
            waited += (len(ended) + len(self._running) * elapsed / self._slice) * RAY_REPORT_SECONDS
        if ended and self.first_report is None:
            self.first_report = now
        found: Reports = []
        for order in ended:
            del self._running[order.pack]
            found.append((order, Trained(self._rows.of(order), len(order.tasks), 1.0)))
        clock.waited += waited
        clock.outside += time.thread_time() - began
        return found

    def hand_back(self, seconds: float) -> "Reports":
        """No pack is stopped here."""
        del seconds
        return []

    def close(self) -> None:
        """Nothing to end."""


class RowsOfPacks:
    """The rows of the first pack of each size, which is trained, as those of any other."""

    def __init__(self, sweep: str, workload: "Workload[Any]") -> None:
        self._sweep, self._workload = sweep, workload
        self._ends: dict[int, tuple[Any, Any]] = {}

    def of(self, order: "PackOrder") -> "Rows":
        """The rows of an ordered pack."""
        from attnsweep.orchestrator.training.messages import Rows
        from attnsweep.orchestrator.training.rows import PackContext, curve_rows, head_rows, trained_rows

        workload, tasks, size = self._workload, order.tasks, len(order.tasks)
        if size not in self._ends:
            self._ends[size] = self._ended(order)
        (result, verdicts), context = self._ends[size], PackContext(self._sweep, order.pack, "cpu", "here")
        trainings = trained_rows(workload, tasks, result, verdicts, [None] * size, context)
        return Rows(trainings, curve_rows(workload, tasks, result), head_rows(workload, tasks, result))

    def _ended(self, order: "PackOrder") -> tuple[Any, Any]:
        from attnsweep.workloads.engine.judging import judged
        from attnsweep.workloads.engine.pack import Pack
        from attnsweep.workloads.engine.process import training_settings

        trainings = [task.training for task in order.tasks]
        # In one thread: others would not be told from the driver's.
        with training_settings():
            pack = Pack(self._workload, trainings)
            pack.train_to_end()
        result = pack.result()
        return result, judged(self._workload, trainings[0].parameters, result.evidence)
