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
from shared.stub_pool import Clock, RowsOfPacks, StubPool

if TYPE_CHECKING:
    from attnsweep.search_spaces import Sweep

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
    from attnsweep.orchestrator.running.progress import ProgressDisplay
    from attnsweep.orchestrator.running.session import _SHOW_SECONDS_PER_TRAINER, _show_progress
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
            if clock.now - shown > _SHOW_SECONDS_PER_TRAINER * stub.n_trainers:
                _show_progress(display, beacon, stub, loop, "")
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
