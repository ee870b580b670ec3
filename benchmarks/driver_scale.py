"""How much work the driver of a sweep can do: a pool that trains nothing, everything else real.

    python benchmarks/driver_scale.py [--parts ray throughput ...] [--out benchmarks/driver_scale.json]

The pool hands back the rows of one real pack with the keys of the ordered trainings. Study, ledger, progress display
and MLflow are those of a sweep. Each measurement runs in a process of its own. Times are CPU seconds of the driver's
process, without what the pool spends on making rows, so that other work on the machine hardly matters. Where time
passes for the trainers too, it is simulated: the driver's CPU seconds, and what it would have waited.

- `ray`: what the driver pays Ray, for a look at the calls of 1,000 trainers and for each report.
- `throughput`: trainings per CPU second, packs of 64, sampler `random` where the case names no other.
- `first_report`: CPU seconds from the start until the loop takes its first report: 1,000 trainers, packs of 512.
- `busy`: share of the time that 4,000 trainers train, 30 s a pack. Each report costs the driver what Ray costs.
- `memory`: peak memory after 20,000 and 200,000 trainings.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(_measure(**json.loads(options.case))))
        return
    report = {"benchmark": "driver_scale", "cpus": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    report |= {part: [case | _in_a_process(part, case) for case in CASES[part]] for part in options.parts}
    text = json.dumps(report, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def _in_a_process(part: str, case: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), "--case", json.dumps({"part": part, **case})]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, check=True, cwd=folder, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({"part": part, **case, **found}), file=sys.stderr)
    return found


def _spec(n_trials: int, replicates: int, sampler: Any) -> "Sweep":
    from attnsweep.search_spaces import Float, Sweep

    return Sweep(
        name="scale",
        workload="category_pairs",
        space={
            "n_steps": 200,
            "n_categories": 4,
            "n_positions": 6,
            "stop_when_solved": False,
            "init_sigma": Float(1e-4, 1.0, log=True),
            "learning_rate": Float(1e-4, 5e-2, log=True),
        },
        sampler=sampler,
        trials=n_trials,
        replicates=replicates,
    )


@dataclass(frozen=True)
class Course:
    """How a sweep went: the driver's clock at its start and end, its pool, and its files."""

    clock: Clock
    pool: StubPool
    cpu_seconds: float
    mlflow_seconds: float
    simulated_seconds: float
    n_files: int
    n_trainings: int


def _ray_costs(calls: int) -> dict[str, float]:
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


def _measure(part: str, **case: Any) -> dict[str, Any]:
    return _ray_costs(**case) if part == "ray" else _measure_course(part, **case)


def _measure_course(part: str, trainings: int, replicates: int, sampler: str = "random", **case: Any) -> dict[str, Any]:
    """One measurement, in this process."""
    course = _drive(_spec(trainings // replicates, replicates, sampler), part, **case)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    common = {"files": course.n_files, "cpu_seconds": round(course.cpu_seconds, 2)}
    match part:
        case "first_report":
            assert course.pool.first_report is not None
            return {"first_report_seconds": round(course.pool.first_report, 2)}
        case "busy":
            return {
                "busy": round(course.pool.busy, 3),
                "simulated_seconds": round(course.simulated_seconds, 1),
                **common,
            }
        case "memory":
            return {"peak_mebibytes": round(peak, 1), **common}
    found = {"trainings_per_cpu_second": round(course.n_trainings / course.cpu_seconds), **common}
    return found | ({"mlflow_seconds": round(course.mlflow_seconds, 2)} if course.mlflow_seconds else {})


def _drive(
    spec: "Sweep",
    part: str,
    *,
    trainers: int,
    pack_size: int = 64,
    seconds: float = 0.0,
    mlflow: bool = False,
) -> Course:
    """Runs a sweep as a session does, on a stub pool."""
    from contextlib import closing

    from rich.console import Console

    from attnsweep.orchestrator.ledger.reader import Ledger
    from attnsweep.orchestrator.ledger.schema import schemas_of
    from attnsweep.orchestrator.ledger.writer import LedgerWriter
    from attnsweep.orchestrator.running.loop import Follower, SweepLoop
    from attnsweep.orchestrator.running.progress import ProgressDisplay
    from attnsweep.orchestrator.running.session import _SHOW_SECONDS_PER_TRAINER, _show_progress
    from attnsweep.orchestrator.running.study import Study
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.orchestrator.storage.whereabouts import Beacon
    from attnsweep.orchestrator.tracking.processes import end_idle_processes
    from attnsweep.orchestrator.tracking.projection import Projection
    from attnsweep.search_spaces.replication import most_wanted
    from attnsweep.workloads.registry import load_workload

    workload = load_workload(spec.workload)
    declared = workload.parameters.declared()
    defaults = {name: each.default for name, each in declared.items() if name not in spec.space}
    directory = SweepDirectory.create(Path("sweep"), spec, defaults)
    rows = RowsOfPacks(spec, min(pack_size, 64))
    clock = Clock()
    pool = StubPool(clock, rows, trainers, seconds, _slice_seconds(trainers) if part == "busy" else None)
    with closing(LedgerWriter(directory.place, schemas_of(workload), directory.spec_sha256)) as writer:
        study = Study(directory)
        earlier = Ledger(directory.place).trainings()
        display = ProgressDisplay(Console(stderr=True, quiet=True), spec, earlier)
        projection = Projection(directory) if mlflow else None
        followers: Sequence[Follower] = [display, *([projection] if projection else [])]
        beacon = Beacon(directory.place)
        loop = SweepLoop(directory, workload, study, writer, pool, pack_size=pack_size, followers=tuple(followers))
        loop.resume(earlier)
        clock.outside = time.process_time()
        shown = 0.0

        def should_stop() -> bool:
            nonlocal shown
            if clock.now - shown > _SHOW_SECONDS_PER_TRAINER * trainers:
                _show_progress(display, beacon, pool, loop, "")
                shown = clock.now
            return part == "first_report" and pool.first_report is not None

        loop.run(should_stop)
        study.save()
        cpu_seconds, simulated_seconds = clock.spent, clock.now
        if projection is not None:
            projection.close()
            end_idle_processes()
        of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
        mlflow_seconds = clock.spent - cpu_seconds + of_children.ru_utime + of_children.ru_stime
    return Course(
        clock,
        pool,
        cpu_seconds,
        mlflow_seconds if mlflow else 0.0,
        simulated_seconds,
        sum(path.is_file() for path in Path("sweep").rglob("*")),
        spec.trials * most_wanted(spec.replicates),
    )


def _slice_seconds(n_trainers: int) -> float:
    from attnsweep.orchestrator.training import trainer

    return float(trainer.slice_seconds(n_trainers))


if __name__ == "__main__":
    main()
