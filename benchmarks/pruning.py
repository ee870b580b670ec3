"""What pruning saves: CPU seconds to the best configuration among the same ones, beside Ray Tune's ASHA.

    python benchmarks/pruning.py [--trials 128] [--replicates 4] [--steps 1000] [--seeds 0 1 2] [--out FILE.json]

Every side gets the same configurations of system P in the same order, and trains `replicates` seeds of each. A trial's
value is the median of their losses. attnsweep trains packs of 256 in one process (`local`), with one thread. Ray Tune
trains each trial's seeds in one batch of plain PyTorch, one trial at a time. Its ASHA has the rungs that attnsweep's
successive halving has.

`target` is the best value without pruning; `seconds_to_target` are CPU seconds, start-up excluded, until the first
trial with at most twice this value has ended (other seeds of the same configuration differ by as much);
`seconds` are those of the whole sweep. For Tune they include all processes of Ray. Losses of diverged trainings count
as infinite.
"""

import argparse
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from shared.system_p import N_CATEGORIES, N_POSITIONS, sweep_of_system_p

SPACE = {"init_sigma": (1e-4, 1.0), "learning_rate": (1e-4, 1e-2)}
FIRST_RUNG, FACTOR = 16, 4
PACK_SIZE = 256
PRUNERS: dict[str, object] = {
    "none": None,
    "successive_halving": {"kind": "successive_halving", "min_resource": FIRST_RUNG, "reduction_factor": FACTOR},
    "hyperband": {"kind": "hyperband", "min_resource": FIRST_RUNG, "reduction_factor": FACTOR},
    "median": {"kind": "median", "n_warmup_steps": FIRST_RUNG},
}
SIDES = (*PRUNERS, "tune_none", "tune_asha")
NEAR = 2.0


def main() -> None:
    """Measures all sides and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--replicates", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is not None:
        side = _tune if options.side.startswith("tune") else _attnsweep
        side(options.side, options.trials, options.replicates, options.steps, options.seeds[0])
        return
    report = {
        "benchmark": "pruning",
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        **{name: getattr(options, name) for name in ("trials", "replicates", "steps")},
        "seeds": [_compare(options, seed) for seed in options.seeds],
    }
    text = json.dumps(report, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def _compare(options: argparse.Namespace, seed: int) -> dict[str, object]:
    courses = {}
    loads = [round(os.getloadavg()[0], 1)]
    for side in options.sides:
        arguments = {name: str(getattr(options, name)) for name in ("trials", "replicates", "steps")}
        command = [sys.executable, str(Path(__file__).resolve()), "--side", side, "--seeds", str(seed)]
        command += [word for name, value in arguments.items() for word in (f"--{name}", value)]
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
            subprocess.run(command, check=True, cwd=folder, env=environment, stdout=sys.stderr)
            courses[side] = json.loads((Path(folder) / "course.json").read_text())
        loads.append(round(os.getloadavg()[0], 1))
    target = min(value for _, value in courses["none"]["ended"])
    return {"seed": seed, "target": target, "loads": loads} | {
        side: _figures(course, target) for side, course in courses.items()
    }


def _figures(course: dict[str, Any], target: float) -> dict[str, object]:
    reached = [seconds for seconds, value in course["ended"] if value <= NEAR * target]
    return {
        "seconds": round(course["seconds"], 1),
        "seconds_to_target": round(min(reached), 1) if reached else None,
        "best": min((value for _, value in course["ended"]), default=None),
        "steps": course["steps"],
        "trials_to_their_end": len(course["ended"]),
    }


def _spec(side: str, n_trials: int, replicates: int, n_steps: int, seed: int) -> Any:
    from attnsweep import LossQuantile

    return sweep_of_system_p(
        n_steps,
        SPACE,
        sampler="random",
        trials=n_trials,
        replicates=replicates,
        objective=LossQuantile(),
        pruner=PRUNERS[side],
        seed=seed,
    )


def _attnsweep(side: str, n_trials: int, replicates: int, n_steps: int, seed: int) -> None:
    from rich.console import Console

    from attnsweep import Resources, run_sweep
    from attnsweep.orchestrator.ledger.trial import ended_trainings, objective_values
    from attnsweep.orchestrator.ledger.writer import LedgerWriter
    from attnsweep.orchestrator.running.loop import SweepLoop

    spec = _spec(side, n_trials, replicates, n_steps, seed)
    course: dict[str, Any] = {"ended": [], "steps": 0}
    commit, run = LedgerWriter.commit, SweepLoop.run
    began = 0.0

    def watched_commit(writer: Any, pack: str, trainings: Any, *tables: Any) -> None:
        commit(writer, pack, trainings, *tables)
        values = objective_values(ended_trainings(trainings), spec.objective)
        course["ended"] += [(time.process_time() - began, value) for value in values.values()]
        course["steps"] += sum(trainings["n_steps"].to_pylist())

    def watched_run(loop: Any, should_stop: Callable[[], bool]) -> bool:
        nonlocal began
        began = time.process_time()
        finished = run(loop, should_stop)
        course["seconds"] = time.process_time() - began
        return finished

    LedgerWriter.commit, SweepLoop.run = watched_commit, watched_run  # type: ignore[assignment, method-assign]
    resources = Resources(local=True, engine="vmapped", pack_size=PACK_SIZE)
    run_sweep(spec, Path("sweep"), resources, Console(stderr=True))
    Path("course.json").write_text(json.dumps(course))


def _tune(side: str, n_trials: int, replicates: int, n_steps: int, seed: int) -> None:
    import warnings

    warnings.simplefilter("ignore")
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

    from attnsweep.search_spaces.random_draws import RandomDraws
    from attnsweep.workloads.engine.schedule import probe_steps

    draws = RandomDraws(_spec("none", n_trials, replicates, n_steps, seed))
    configurations = [dict(draws.draw(trial)[0]) for trial in range(n_trials)]
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    course: dict[str, Any] = {"ended": [], "steps": 0}
    seen: dict[int, int] = {}
    began = _spent(seen)

    class Watch(tune.Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:  # noqa: ARG002
            # A worker that ends later takes its count with it.
            _spent(seen)

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:  # noqa: ARG002
            last = trial.last_result
            course["steps"] += last["step"] * replicates
            if last["step"] == n_steps:
                course["ended"].append((_spent(seen) - began, last["level"]))

    asha = ASHAScheduler(
        time_attr="step", max_t=n_steps, grace_period=FIRST_RUNG, reduction_factor=FACTOR, metric="level", mode="min"
    )
    tuner = tune.Tuner(
        _train_one,
        param_space={
            "drawn": tune.grid_search(configurations),
            "replicates": replicates,
            "probes": [step for step in probe_steps(n_steps) if step],
        },
        tune_config=tune.TuneConfig(
            scheduler=asha if side == "tune_asha" else FIFOScheduler(),
            # Otherwise each trial starts a process and imports torch, which is many times slower.
            reuse_actors=True,
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(
            name="bench", storage_path=str(Path("tune").resolve()), verbose=0, callbacks=[Watch()]
        ),
    )
    results = tuner.fit()
    course["seconds"] = _spent(seen) - began
    assert len(results) == n_trials
    assert not results.errors
    Path("course.json").write_text(json.dumps(course))


def _spent(seen: dict[int, int]) -> float:
    """CPU seconds of this process and of all that it has started, and these in turn.

    Args:
        seen: Clock ticks by process as they were last seen; updated.
    """
    family = {os.getpid()}
    for number in sorted(int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
        try:
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if number in family or int(fields[1]) in family:
            family.add(number)
            seen[number] = int(fields[11]) + int(fields[12])
    return sum(seen.values()) / os.sysconf("SC_CLK_TCK")


def _train_one(config: dict[str, Any]) -> None:
    """All seeds of one configuration of system P in plain PyTorch: gradient descent on the population loss."""
    import torch
    from ray import tune

    torch.set_num_threads(1)
    N, M, R = N_CATEGORIES, N_POSITIONS, config["replicates"]
    sigma, rate = config["drawn"]["init_sigma"], config["drawn"]["learning_rate"]
    q = (sigma * torch.randn(R, M, M, dtype=torch.float64)).requires_grad_()
    v = (sigma * torch.randn(R, N, N, dtype=torch.float64)).requires_grad_()
    optimizer = torch.optim.SGD([q, v], lr=rate)

    def losses() -> torch.Tensor:
        columns = q[:, :, 1:]
        p, s, n = columns.diagonal(dim1=1, dim2=2), columns.sum(1), columns.square().sum(1)
        b = v.sum((1, 2))[:, None] / N
        a = v.diagonal(dim1=1, dim2=2).sum(1)[:, None] - b
        B = v.sum(2).square().sum(1)[:, None] / N
        A = v.square().sum((1, 2))[:, None] - B
        found: torch.Tensor = (1 + (-2 * a * p - 2 * b * s + A * n + B * s.square()) / N).sum(1)
        return found

    done = 0
    for step in config["probes"]:
        for _ in range(step - done):
            optimizer.zero_grad()
            losses().sum().backward()
            optimizer.step()
        done = step
        level = np.sort(np.nan_to_num(losses().detach().numpy() / (M - 1), nan=np.inf))[(R - 1) // 2]
        tune.report({"level": float(min(level, 1e12)), "step": step})


if __name__ == "__main__":
    main()
