"""A pool that trains nothing, on a simulated clock: it returns the rows of one real pack with other keys."""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnsweep.orchestrator.training.messages import PackOrder, Reports, Rows
    from attnsweep.search_spaces import Sweep

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
        n_trainers: How many.
        seconds: What a pack takes.
        slice_seconds: Between two reports of a pack; `None` for no report before its end.

    Attributes:
        first_report: When the loop took the first report.
    """

    def __init__(
        self, clock: Clock, rows: "RowsOfPacks", n_trainers: int, seconds: float, slice_seconds: float | None
    ) -> None:
        self.n_trainers = self.n_placed = n_trainers
        self.accelerator = "cpu"
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
    def running(self) -> "list[PackOrder]":
        """The packs under way."""
        return [order for _, order in self._running.values()]

    @property
    def waiting_for(self) -> str:
        """All trainers are up."""
        return ""

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
            cost = (len(ended) + len(self._running) * elapsed / self._slice) * RAY_REPORT_SECONDS
            waited += cost
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
    """The rows of one real pack, as those of any other."""

    def __init__(self, spec: "Sweep", pack_size: int) -> None:
        from attnsweep.orchestrator.training.identity import Task
        from attnsweep.orchestrator.training.messages import PackOrder, Progress, RunContext, Trained
        from attnsweep.orchestrator.training.trainer import Trainer
        from attnsweep.workloads.engine.contract import Training
        from attnsweep.workloads.registry import load_workload

        self._workload = workload = load_workload(spec.workload)
        fixed = workload.parameters.resolve(spec.fixed())
        tasks = [Task(0, lane, Training(fixed, lane)) for lane in range(pack_size)]
        trainer = Trainer(workload, RunContext("s"), "cpu")
        report = trainer.start(PackOrder("p", tasks))
        while isinstance(report, Progress):
            report = trainer.proceed()
        assert isinstance(report, Trained), report
        self._trainings, self._curves = report.rows.trainings, report.rows.curves

    def of(self, order: "PackOrder") -> "Rows":
        """The rows of an ordered pack; a larger one repeats the template."""
        import numpy as np
        import pyarrow as pa

        from attnsweep.orchestrator.training.identity import training_id
        from attnsweep.orchestrator.training.messages import Rows

        n_lanes, n_template = len(order.tasks), self._trainings.num_rows
        trainings = self._trainings.take(np.arange(n_lanes) % n_template)
        ids = [training_id(self._workload.name, each.training.parameters, each.training.seed) for each in order.tasks]
        trials = np.array([task.trial for task in order.tasks], np.int32)
        replicates = np.array([task.replicate for task in order.tasks], np.int32)
        changed = {
            "trial": trials,
            "replicate": replicates,
            "training_id": ids,
            "seed": [task.training.seed for task in order.tasks],
            "pack": [order.pack] * n_lanes,
            "lane": list(range(n_lanes)),
        }
        for name in ("init_sigma", "learning_rate"):
            changed[f"param_{name}"] = [getattr(task.training.parameters, name) for task in order.tasks]
        for name, values in changed.items():
            place = trainings.schema.get_field_index(name)
            field = trainings.schema.field(place)
            trainings = trainings.set_column(place, field, pa.array(values, field.type))
        per_lane = self._curves.num_rows // n_template
        curves = pa.concat_tables([self._curves] * -(-n_lanes // n_template)).slice(0, per_lane * n_lanes)
        lanes = np.repeat(np.arange(n_lanes, dtype=np.int32), per_lane)
        keys = {
            "training_id": pa.DictionaryArray.from_arrays(lanes, pa.array(ids)),
            "trial": pa.array(trials[lanes]),
            "replicate": pa.array(replicates[lanes]),
        }
        for name, array in keys.items():
            curves = curves.set_column(curves.schema.get_field_index(name), curves.schema.field(name), array)
        return Rows(trainings, curves, None)
