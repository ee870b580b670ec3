"""Trials until a sampler that learns has found the best: `tpe` of a small sweep against Optuna's own loop.

    python benchmarks/tpe.py [--trials 48] [--repeats 50] [--trainers 2] [--out benchmarks/tpe.json] [--quick]

Three problems over init_sigma and learning_rate, both logarithmic: system P, modular addition, associative recall. A
problem is a surface: the mean over 4 seeds of the logarithm of the held-out loss (a diverged training has that of the
worst), trained on a grid of 12 x 12 points and interpolated between them. The best decile is that of the area.

`sweep` asks the study as the loop does: the start-up trials at once, then a group when all before it have ended.
`optuna` is `study.optimize` with a `TPESampler`, one trial after the other. `trials` is the mean number of trials until
the fifth that lies in the best decile (the first ten are random on both sides, so that one alone would show nothing);
a run in which there is none counts with all its trials (`not_reached`). `ratio` is that of the two means.
"""

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch
from harness import main
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator

from attnsweep.orchestrator.ledger.trial import Told
from attnsweep.orchestrator.running.study import open_study
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.tasks import training_seed
from attnsweep.search_spaces import Float, LossQuantile, Sweep
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.testing import defaults

N_REPLICATES, N_FOUND, PACK = 4, 5, 64
ENDS = {"init_sigma": (1e-3, 3.0), "learning_rate": (1e-4, 1e-1)}
PROBLEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "system_p": (
        "category_pairs",
        {"variant": "positions_only", "n_categories": 4, "n_positions": 6, "n_steps": 150},
    ),
    "modular_addition": (
        "modular_addition",
        {"p": 11, "d_model": 16, "d_ffn": 32, "train_fraction": 0.7, "n_steps": 150},
    ),
    "recall": ("sequence_tasks", {"task": "recall", "length": 4, "n_kinds": 4, "optimizer": "adam", "n_steps": 150}),
}
Surface = Callable[[float, float], float]


def measure(*, trials: int = 48, repeats: int = 50, trainers: int = 2, quick: bool = False) -> dict[str, Any]:
    """By problem and side, the mean number of trials, its standard error and the runs that did not get there."""
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    n_axis, seeds = (3, range(1)) if quick else (12, range(repeats))
    rows = []
    for name, (workload, fixed) in PROBLEMS.items():
        surface = surface_of(workload, fixed, n_axis)
        axis = np.linspace(0, 1, 101)
        best = float(np.quantile([surface(x, y) for x in axis for y in axis], 0.1))
        found = {
            each.__name__: [n_needed(each(surface, trials, trainers, seed), best) for seed in seeds] for each in SIDES
        }
        means = {side: round(float(np.mean([min(n, trials) for n in ns])), 1) for side, ns in found.items()}
        errors = {f"{side}_error": round(float(np.std(ns) / len(ns) ** 0.5), 1) for side, ns in found.items()}
        lost = {f"{side}_not_reached": sum(n > trials for n in ns) for side, ns in found.items()}
        rows.append({"problem": name, **means, **errors, **lost, "ratio": round(means["sweep"] / means["optuna"], 2)})
    return {"trials": trials, "trainers": trainers, "repeats": len(seeds), "rows": rows}


def surface_of(name: str, fixed: dict[str, Any], n_axis: int) -> Surface:
    """The surface of a problem, over the unit square."""
    workload, axis = load_workload(name), np.linspace(0, 1, n_axis)
    trainings = [
        Training(defaults(workload, **fixed, **values(x, y)), training_seed(0, trial, replicate))
        for trial, (x, y) in enumerate((x, y) for x in axis for y in axis)
        for replicate in range(N_REPLICATES)
    ]
    losses: list[NDArray[np.float64]] = []
    for start in range(0, len(trainings), PACK):
        result = Pack(workload, trainings[start : start + PACK]).train_to_end()
        loss = result.at_last_probe(result.evidence.metrics["eval_loss"])
        losses.append(np.where(result.diverged_step < 0, loss, np.nan))
    logs = np.log(np.maximum(np.concatenate(losses), 1e-30))
    logs = np.where(np.isnan(logs), np.nanmax(logs), logs).reshape(n_axis, n_axis, N_REPLICATES).mean(-1)
    interpolated = RegularGridInterpolator((axis, axis), logs)
    return lambda x, y: float(interpolated((x, y)))


def sweep(surface: Surface, trials: int, trainers: int, seed: int) -> Iterable[float]:
    """The values of a sweep's trials, in the order in which they are drawn."""
    space = {name: Float(low=low, high=high, log=True) for name, (low, high) in ENDS.items()}
    spec = Sweep(name="tpe", workload="category_pairs", space=space, trials=trials, seed=seed, objective=LossQuantile())
    with tempfile.TemporaryDirectory() as place:
        study = open_study(SweepDirectory.create(Path(place) / "s", spec, {}))
        while study.n_left:
            for trial in [study.ask() for _ in range(study.n_to_draw(trainers, ()))]:
                values = study.values(trial)
                value = surface(*(share(name, float(values[name])) for name in ENDS))  # type: ignore[arg-type]
                study.tell(trial, Told((value,), {}))
                yield value


def optuna_loop(surface: Surface, trials: int, trainers: int, seed: int) -> Iterable[float]:
    """The values of the trials of Optuna's own loop, which has one trial at a time."""
    del trainers
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def objective(trial: optuna.Trial) -> float:
        drawn = {name: trial.suggest_float(name, low, high, log=True) for name, (low, high) in ENDS.items()}
        return surface(*(share(name, value) for name, value in drawn.items()))

    study.optimize(objective, n_trials=trials)
    return [trial.values[0] for trial in study.trials]


optuna_loop.__name__ = "optuna"
SIDES = (sweep, optuna_loop)


def n_needed(losses_by_trial: Iterable[float], best: float) -> int:
    """The number of trials until the fifth in the best decile; one more than all if there is no fifth."""
    good = np.array([value <= best for value in losses_by_trial])
    at = np.flatnonzero(np.cumsum(good) >= N_FOUND)
    return int(at[0]) + 1 if len(at) else len(good) + 1


def share(name: str, value: float) -> float:
    low, high = ENDS[name]
    return float(np.clip(np.log(value / low) / np.log(high / low), 0.0, 1.0))


def values(x: float, y: float) -> dict[str, float]:
    return {
        name: float(np.clip(low * (high / low) ** at, low, high))
        for (name, (low, high)), at in zip(ENDS.items(), (x, y), strict=True)
    }


if __name__ == "__main__":
    main(measure)
