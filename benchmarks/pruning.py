"""What pruning saves: CPU seconds to the best configuration among the same ones, beside Ray Tune's ASHA.

    python benchmarks/pruning.py [--sides none successive_halving hyperband median tune_none tune_asha] [--trials 128]
        [--replicates 4] [--steps 1000] [--pack-size 256] [--seeds 0 1 2] [--out FILE.json]

Every side gets the same configurations of system P in the same order, and trains `replicates` seeds of each. A trial's
value is the median of their losses. attnsweep trains packs in one process (`local`), with one thread. Ray Tune trains
each trial's seeds in one batch of plain PyTorch, one trial at a time. Its ASHA has the rungs of attnsweep's successive
halving.

`target` is the best value without pruning; `seconds_to_target` are CPU seconds, start-up excluded, until the first
trial with at most twice this value has ended (other seeds of the same configuration differ by as much);
`seconds` are those of the whole sweep. For Tune they include all processes of Ray. Losses of diverged trainings count
as infinite.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import apart, chosen, descendants, main
from shared.system_p import PlainTrainings, run_tune, start_ray, sweep_of_system_p

SPACE = {"init_sigma": (1e-4, 1.0), "learning_rate": (1e-4, 1e-2)}
FIRST_RUNG, FACTOR = 16, 4
PRUNERS: dict[str, object] = {
    "none": None,
    "successive_halving": {"kind": "successive_halving", "min_resource": FIRST_RUNG, "reduction_factor": FACTOR},
    "hyperband": {"kind": "hyperband", "min_resource": FIRST_RUNG, "reduction_factor": FACTOR},
    "median": {"kind": "median", "n_warmup_steps": FIRST_RUNG},
}
SIDES = (*PRUNERS, "tune_none", "tune_asha")
NEAR = 2.0


def measure(
    *,
    sides: tuple[str, ...] = SIDES,
    trials: int = 128,
    replicates: int = 4,
    steps: int = 1000,
    pack_size: int = 256,
    seeds: tuple[int, ...] = (0, 1, 2),
) -> dict[str, Any]:
    """Measures all sides with each seed of the configurations, and without a pruner in any case."""
    named = dict.fromkeys(["none", *chosen(SIDES, sides)])
    setting = {"trials": trials, "replicates": replicates, "steps": steps}
    rows = []
    for seed in seeds:
        courses = {}
        for side in named:
            if side.startswith("tune"):
                courses[side], _ = apart(tune_side, side=side, seed=seed, **setting)
            else:
                courses[side], _ = apart(attnsweep_side, side=side, seed=seed, pack_size=pack_size, **setting)
        target = min(value for _, value in courses["none"]["ended"])
        rows += [{"seed": seed, "side": side, **_figures(course, target)} for side, course in courses.items()]
    return {**setting, "pack_size": pack_size, "rows": rows}


def _figures(course: dict[str, Any], target: float) -> dict[str, object]:
    reached = [seconds for seconds, value in course["ended"] if value <= NEAR * target]
    return {
        "target": target,
        "seconds": round(course["seconds"], 1),
        "seconds_to_target": round(min(reached), 1) if reached else None,
        "best": min((value for _, value in course["ended"]), default=None),
        "steps": course["steps"],
        "trials_to_their_end": len(course["ended"]),
    }


def _spec(side: str, trials: int, replicates: int, steps: int, seed: int) -> Any:
    from attnsweep import LossQuantile

    course = {"trials": trials, "replicates": replicates, "pruner": PRUNERS[side], "seed": seed}
    return sweep_of_system_p(steps, SPACE, sampler="random", objective=LossQuantile(), **course)


def attnsweep_side(side: str, pack_size: int, **setting: Any) -> dict[str, Any]:
    """The course of a sweep in this process: when each trial ended with which value."""
    os.environ["OMP_NUM_THREADS"] = "1"
    from rich.console import Console

    from attnsweep import Resources, run_sweep
    from attnsweep.orchestrator.ledger.trial import ended_trainings, objective_values
    from attnsweep.orchestrator.ledger.writer import LedgerWriter
    from attnsweep.orchestrator.running.loop import SweepLoop

    spec = _spec(side, **setting)
    course: dict[str, Any] = {"ended": [], "steps": 0}
    commit, run = LedgerWriter.commit, SweepLoop.run
    began = 0.0

    def watched_commit(writer: Any, pack: str, trainings: Any, *tables: Any) -> None:
        commit(writer, pack, trainings, *tables)
        values = objective_values(ended_trainings(trainings), spec.objectives[0])
        course["ended"] += [(time.process_time() - began, value) for value in values.values()]
        course["steps"] += sum(trainings["n_steps"].to_pylist())

    def watched_run(loop: Any, should_stop: Callable[[], bool]) -> bool:
        nonlocal began
        began = time.process_time()
        finished = run(loop, should_stop)
        course["seconds"] = time.process_time() - began
        return finished

    LedgerWriter.commit, SweepLoop.run = watched_commit, watched_run  # type: ignore[assignment, method-assign]
    resources = Resources(local=True, engine="vmapped", pack_size=pack_size)
    run_sweep(spec, Path("sweep"), resources, Console(stderr=True))
    return course


def tune_side(side: str, trials: int, replicates: int, steps: int, seed: int) -> dict[str, Any]:
    """The same of Ray Tune, on a Ray of its own."""
    os.environ["OMP_NUM_THREADS"] = "1"
    start_ray(num_cpus=1)
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

    from attnsweep.search_spaces.numbered_draws import RandomDraws
    from attnsweep.workloads.engine.schedule import probe_steps

    draws = RandomDraws(_spec("none", trials, replicates, steps, seed))
    configurations = [dict(draws.draw(trial)[0]) for trial in range(trials)]
    course: dict[str, Any] = {"ended": [], "steps": 0}
    seen: dict[int, int] = {}
    began = _spent(seen)

    def train_one(config: dict[str, Any]) -> None:
        drawn = config["drawn"]
        trainings = PlainTrainings((replicates,), drawn["init_sigma"], drawn["learning_rate"])
        done = 0
        for step in (each for each in probe_steps(steps) if each):
            trainings.advance(step - done)
            done = step
            tune.report({"level": trainings.levels()[(replicates - 1) // 2], "step": step})

    class Watch(tune.Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:  # noqa: ARG002
            # A worker that ends later takes its count with it.
            _spent(seen)

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:  # noqa: ARG002
            last = trial.last_result
            course["steps"] += last["step"] * replicates
            if last["step"] == steps:
                course["ended"].append((_spent(seen) - began, last["level"]))

    rungs: dict[str, Any] = {
        "time_attr": "step",
        "max_t": steps,
        "grace_period": FIRST_RUNG,
        "reduction_factor": FACTOR,
    }
    asha = ASHAScheduler(**rungs, metric="level", mode="min")
    scheduler = asha if side == "tune_asha" else FIFOScheduler()
    space = {"drawn": tune.grid_search(configurations)}
    results = run_tune(train_one, space, Watch(), scheduler=scheduler, max_concurrent_trials=1)
    course["seconds"] = _spent(seen) - began
    assert len(results) == trials
    return course


def _spent(seen: dict[int, int]) -> float:
    """CPU seconds of this process and of all that it has started, and these in turn.

    Args:
        seen: Clock ticks by process as they were last seen; updated.
    """
    for process in (os.getpid(), *descendants(os.getpid())):
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            seen[process] = int(fields[11]) + int(fields[12])
    return sum(seen.values()) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(measure)
