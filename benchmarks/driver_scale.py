"""How much work the driver of a sweep can do: a pool that trains nothing, everything else real.

    python benchmarks/driver_scale.py [--parts ray throughput ...] [--share 1] [--out benchmarks/driver_scale.json]

The pool hands back the rows of real packs with the keys of the ordered trainings. Study, ledger, progress display and
MLflow are those of a sweep. Each measurement runs in a process of its own. Times are CPU seconds of the driver's
process, without what the pool spends on making rows, so that other work on the machine hardly matters. Where time
passes for the trainers too, it is simulated: the driver's CPU seconds, and what it would have waited.

- `ray`: what the driver pays Ray, for a look at the calls of 1,000 trainers and for each report.
- `throughput`: trainings per CPU second, packs of 64, sampler `random` where the case names no other.
- `first_report`: CPU seconds from the start until the loop takes its first report: 1,000 trainers, packs of 512.
- `busy`: share of the time that 4,000 trainers train, 30 s a pack. Each report costs the driver what Ray costs.
- `memory`: peak memory after 20,000 and 200,000 trainings.

`--share 0.05` takes that share of the trainings and trainers, only to see that it runs.
"""

import resource
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import apart, chosen, main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnsweep.orchestrator.training.messages import Hardware, PackOrder, Reports, Rows
    from attnsweep.search_spaces import Sweep
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


CASES: dict[str, list[dict[str, Any]]] = {
    "ray": [{"calls": 1000}],
    "throughput": [
        {"trainings": 8192, "replicates": 1, "trainers": 1},
        {"trainings": 16384, "replicates": 1, "trainers": 64},
        {"trainings": 16384, "replicates": 16, "trainers": 1},
        {"trainings": 65536, "replicates": 16, "trainers": 64},
        {"trainings": 4096, "replicates": 1, "trainers": 2, "sampler": "tpe"},
        {"trainings": 2048, "replicates": 1, "trainers": 64, "mlflow": True},
    ],
    "first_report": [{"trainings": 512_000, "replicates": 1, "trainers": 1000, "pack_size": 512}],
    "busy": [
        {"trainings": 192_000, "replicates": 1, "trainers": 4000, "pack_size": 16, "seconds": 30.0},
        {"trainings": 192_000, "replicates": 16, "trainers": 4000, "pack_size": 16, "seconds": 30.0},
    ],
    "memory": [
        {"trainings": 20_000, "replicates": 1, "trainers": 64},
        {"trainings": 200_000, "replicates": 1, "trainers": 64},
    ],
}


def measure(*, parts: tuple[str, ...] = tuple(CASES), share: float = 1.0) -> dict[str, Any]:
    """Measures the parts."""
    found: dict[str, Any] = {}
    for part in chosen(CASES, parts):
        found[part] = []
        for case in CASES[part]:
            smaller = {
                name: max(1, int(case[name] * share)) for name in ("calls", "trainings", "trainers") if name in case
            }
            case = case | smaller
            figures, spent = apart(ray_costs, **case) if part == "ray" else apart(drive, part=part, **case)
            peak = {"peak_mebibytes": round(spent.peak_mebibytes, 1)} if part == "memory" else {}
            found[part].append(case | figures | peak)
    return found


def ray_costs(calls: int) -> dict[str, float]:
    """CPU seconds of the driver for `ray.wait` on pending calls, for each of them, and for one report and next call."""
    import ray

    from attnsweep.orchestrator.training.messages import Progress

    @ray.remote(num_cpus=0)
    class Reporter:
        def hold(self) -> None:
            time.sleep(600)

        def report(self) -> Progress:
            return Progress(1)

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    holding, reporter = Reporter.remote(), Reporter.remote()  # type: ignore[attr-defined]  # by its decorator
    pending = [holding.hold.remote() for _ in range(calls)]
    ray.get(reporter.report.remote())
    began = time.process_time()
    for _ in range(50):
        ray.wait(pending, num_returns=calls, timeout=0)
    looked = time.process_time()
    ready = [reporter.report.remote() for _ in range(calls)]
    for reference in ready:
        ray.get(reference)
    reported = time.process_time()
    ray.shutdown()
    return {
        "wait_seconds_per_trainer": round((looked - began) / 50 / calls, 9),
        "report_seconds": round((reported - looked) / calls, 6),
    }


def drive(
    part: str, trainings: int, replicates: int, sampler: Any = "random", mlflow: bool = False, **pool: Any
) -> dict[str, Any]:
    """Runs a sweep of system P in this process; returns the figures of the part."""
    from attnsweep.orchestrator.training.trainer import slice_seconds
    from attnsweep.search_spaces import Float, Sweep

    space: dict[str, Any] = {"n_steps": 200, "n_categories": 4, "n_positions": 6, "stop_when_solved": False}
    space |= {"init_sigma": Float(1e-4, 1.0, log=True), "learning_rate": Float(1e-4, 5e-2, log=True)}
    course = {"sampler": sampler, "trials": trainings // replicates, "replicates": replicates}
    spec = Sweep(name="scale", workload="category_pairs", space=space, **course)
    pool["slice_seconds"] = slice_seconds(pool["trainers"]) if part == "busy" else None
    stub, cpu_seconds, mlflow_seconds = driven(spec, Path("sweep"), mlflow, part == "first_report", **pool)
    if part == "first_report":
        return {"first_report_seconds": round(stub.first_report or 0.0, 2)}
    return {
        "files": sum(path.is_file() for path in Path("sweep").rglob("*")),
        "cpu_seconds": round(cpu_seconds, 2),
        "trainings_per_cpu_second": round(trainings / cpu_seconds),
        **({"busy": round(stub.busy, 3)} if part == "busy" else {}),
        **({"mlflow_seconds": round(mlflow_seconds, 2)} if mlflow else {}),
    }


def driven(
    spec: "Sweep",
    path: Path,
    mlflow: bool = False,
    until_first_report: bool = False,
    pack_size: int = 64,
    **pool: Any,
) -> tuple[StubPool, float, float]:
    """Runs a sweep as a session does, on a `StubPool`: that, and CPU seconds of the driver and of MLflow."""
    from rich.console import Console

    from attnsweep.orchestrator.ledger.reader import Ledger
    from attnsweep.orchestrator.ledger.schema import schemas_of
    from attnsweep.orchestrator.ledger.writer import LedgerWriter
    from attnsweep.orchestrator.running.loop import SweepLoop
    from attnsweep.orchestrator.running.one_run import SHOW_SECONDS_PER_TRAINER, show_progress
    from attnsweep.orchestrator.running.progress import ProgressDisplay
    from attnsweep.orchestrator.running.study import Study
    from attnsweep.orchestrator.storage.run_records import Beacon
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.orchestrator.tracking.processes import end_idle_processes
    from attnsweep.orchestrator.tracking.projection import Projection
    from attnsweep.workloads.registry import load_workload

    workload = load_workload(spec.workload)
    declared = workload.parameters.declared()
    defaults = {name: each.default for name, each in declared.items() if name not in spec.space}
    directory, clock = SweepDirectory.create(path, spec, defaults), Clock()
    stub = StubPool(clock, RowsOfPacks(spec.name, workload), **pool)
    with closing(LedgerWriter(directory.place, schemas_of(workload), directory.spec_sha256)) as writer:
        study, beacon = Study(directory), Beacon(directory.place)
        earlier = Ledger(directory.place).trainings()
        display = ProgressDisplay(Console(stderr=True, quiet=True), spec, earlier)
        projection = Projection(directory) if mlflow else None
        followers = (display, projection) if projection else (display,)
        loop = SweepLoop(directory, workload, study, writer, stub, pack_size=pack_size, followers=followers)
        loop.resume(earlier)
        clock.outside = time.process_time()
        shown = 0.0

        def should_stop() -> bool:
            nonlocal shown
            if clock.now - shown > SHOW_SECONDS_PER_TRAINER * stub.n_trainers:
                show_progress(display, beacon, stub, loop, "")
                shown = clock.now
            return until_first_report and stub.first_report is not None

        loop.run(should_stop)
        study.save()
        cpu_seconds = clock.spent
        if projection is not None:
            projection.close()
            end_idle_processes()
        of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return stub, cpu_seconds, clock.spent - cpu_seconds + of_children.ru_utime + of_children.ru_stime


if __name__ == "__main__":
    main(measure)
