"""The sampler `boundary` against random draws and a grid: how many trials does each need to locate the boundary?

    python benchmarks/boundary.py [--repeats 5] [--out benchmarks/boundary.json] [--quick]

`system_p`: `positions_only`, 4 categories, 6 positions, 150 steps of gradient descent over init_sigma and
learning_rate, both logarithmic. The truth is a grid of 24 x 24 points with 32 trainings each: is the share of stuck
trainings above or below one half? Points whose share is within 0.09 of one half may be on either side
(`unclear_share`). `wave` and `island` are known surfaces of rates over the same two axes; their trainings are drawn at
these rates.

A design spends trials of 8 trainings. The same surface (`attnsweep.search_spaces.surface`) is fitted to what each
design found; its error is the share of the grid's points that it puts on the wrong side. `boundary` is asked through
the study, eight trials at a time, and seeded like a sweep. Trainings are fused in this process: no Ray, no ledger.
`trials_to_reach` is the number of trials after which a design's mean error stays at or below each of `targets`; null:
never.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.identity import Task, training_seed
from attnsweep.orchestrator.training.rows import PackContext, trained_rows
from attnsweep.search_spaces import Float, Sweep
from attnsweep.search_spaces.surface import Counts, StuckSurface
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.testing import defaults

Array = NDArray[np.float64]

BUDGETS = (16, 25, 36, 49, 64, 100)
N_REPLICATES, BATCH, N_TRUTH, PACK = 8, 8, 32, 512
TARGETS = (0.03, 0.02, 0.01)
SIGMA, RATE = (1e-4, 3.0), (1e-4, 5e-2)
FIXED: dict[str, Any] = {"variant": "positions_only", "n_categories": 4, "n_positions": 6, "n_steps": 150}


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="sweeps of each design, with different seeds")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="small sizes, only to see that it runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    budgets = BUDGETS[:3] if options.quick else BUDGETS
    repeats = range(1 if options.quick else options.repeats)
    content: dict[str, Any] = {
        "benchmark": "boundary",
        "name": platform.machine(),
        "load": [round(each, 1) for each in os.getloadavg()],
        "parameters": {**FIXED, "init_sigma": SIGMA, "learning_rate": RATE},
        "trainings_per_trial": N_REPLICATES,
        "repeats": len(repeats),
        "targets": TARGETS,
    }
    lattice = _lattice(12 if options.quick else 24)
    n_truth = 8 if options.quick else N_TRUTH
    problems = {
        "system_p": Problem(train, lattice, train(lattice, n_truth, seed=2**40) / n_truth),
        "wave": Problem(partial(draw, wave), lattice, wave(lattice)),
        "island": Problem(partial(draw, island), lattice, island(lattice)),
    }
    for name, problem in problems.items():
        content[name] = measured(problem, budgets, repeats)
    content["seconds"] = round(time.perf_counter() - started, 1)
    text = json.dumps(content, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


class Train(Protocol):
    """Returns how many of `n_trainings` end stuck at each point of the unit square."""

    def __call__(self, points: Array, n_trainings: int, seed: int, first: int = 0) -> Array:
        """Trains.

        Args:
            points: (n, 2) scaled (init_sigma, learning_rate).
            n_trainings: Trainings at each point.
            seed: The seed of the design's trainings.
            first: The index of the first point in its design.
        """


class Problem:
    """A problem to train, and for each point of a fine grid the side of one half that its stuck rate is on."""

    def __init__(self, train: Train, points: Array, share: Array) -> None:
        self.train = train
        self._points, self._stuck = points, share > 0.5
        self.stuck_share = float(self._stuck.mean())
        self.unclear_share = float(np.mean(np.abs(share - 0.5) < 0.09))

    def error(self, points: Array, n_stuck: Array) -> float:
        """The share of the grid that a surface of these trials puts on the wrong side."""
        counts = Counts(points, n_stuck, np.full(len(points), float(N_REPLICATES)))
        mean, _ = StuckSurface.fit(counts).logit(self._points)
        return float(np.mean((mean > 0) != self._stuck))


def measured(problem: Problem, budgets: Sequence[int], repeats: range) -> dict[str, Any]:
    """The errors of each design after each budget."""
    found: dict[str, Any] = {"stuck_share": problem.stuck_share, "unclear_share": problem.unclear_share}
    for design in (boundary, random, grid):
        errors = design(problem, budgets, repeats)
        mean = {budget: float(np.mean(each)) for budget, each in errors.items()}
        found[design.__name__] = {
            "error": {str(budget): round(each, 4) for budget, each in mean.items()},
            "standard_error": {
                str(budget): round(float(np.std(each, ddof=1) / len(each) ** 0.5), 4) if len(each) > 1 else None
                for budget, each in errors.items()
            },
            "trials_to_reach": {
                str(target): next(
                    (b for b in budgets if all(mean[more] <= target for more in budgets if more >= b)), None
                )
                for target in TARGETS
            },
        }
    return found


def boundary(problem: Problem, budgets: Sequence[int], repeats: range) -> dict[int, list[float]]:
    """The errors of sweeps that ask the sampler, after each budget."""
    found: dict[int, list[float]] = {budget: [] for budget in budgets}
    for seed in repeats:
        points, n_stuck = _asked(problem, max(budgets), seed)
        for budget in budgets:
            found[budget].append(problem.error(points[:budget], n_stuck[:budget]))
    return found


def random(problem: Problem, budgets: Sequence[int], repeats: range) -> dict[int, list[float]]:
    """The errors of independent draws; a smaller budget is the first part of a larger one."""
    found: dict[int, list[float]] = {budget: [] for budget in budgets}
    for seed in repeats:
        points = np.random.default_rng(seed).random((max(budgets), 2))
        n_stuck = problem.train(points, N_REPLICATES, seed)
        for budget in budgets:
            found[budget].append(problem.error(points[:budget], n_stuck[:budget]))
    return found


def grid(problem: Problem, budgets: Sequence[int], repeats: range) -> dict[int, list[float]]:
    """The errors of square grids, ends included."""
    return {
        budget: [problem.error(points, problem.train(points, N_REPLICATES, seed)) for seed in repeats]
        for budget in budgets
        for points in [_lattice(round(budget**0.5))]
    }


def _asked(problem: Problem, n_trials: int, seed: int) -> tuple[Array, Array]:
    space = {**FIXED, "init_sigma": _axis(SIGMA), "learning_rate": _axis(RATE)}
    spec = Sweep(
        name="boundary",
        workload="category_pairs",
        space=space,
        sampler="boundary",
        trials=n_trials,
        replicates=N_REPLICATES,
        seed=seed,
    )
    points, n_stuck = np.zeros((0, 2)), np.zeros(0)
    with tempfile.TemporaryDirectory() as place:
        study = Study(SweepDirectory.create(Path(place) / "s", spec, {}))
        while study.n_left:
            asked = [study.ask() for _ in range(min(BATCH, study.n_left))]
            batch = np.array([_point(each.values["init_sigma"], each.values["learning_rate"]) for each in asked])
            ended = problem.train(batch, N_REPLICATES, seed, first=asked[0].trial)
            for configuration, k in zip(asked, ended, strict=True):
                study.tell(configuration.trial, k / N_REPLICATES, N_REPLICATES)
            points, n_stuck = np.concatenate([points, batch]), np.concatenate([n_stuck, ended])
    return points, n_stuck


def train(points: Array, n_trainings: int, seed: int, first: int = 0) -> Array:
    """`Train` of system P."""
    workload = CategoryPairs()
    tasks = [
        Task(
            trial,
            replicate,
            Training(
                defaults(workload, **FIXED, init_sigma=_value(SIGMA, point[0]), learning_rate=_value(RATE, point[1])),
                training_seed(seed, trial, replicate),
            ),
        )
        for trial, point in enumerate(points, start=first)
        for replicate in range(n_trainings)
    ]
    stuck: list[bool] = []
    for start in range(0, len(tasks), PACK):
        lanes = tasks[start : start + PACK]
        pack = Pack(workload, [task.training for task in lanes])
        while not pack.advance(1000):
            pass
        result, context = pack.result(), PackContext("b", "p", "cpu", "here")
        verdicts = judged(workload, lanes[0].training.parameters, result.evidence)
        rows = trained_rows(workload, lanes, result, verdicts, [None] * len(lanes), context)
        stuck += rows["stuck"].to_pylist()
    n_stuck: Array = np.array(stuck, dtype=np.float64).reshape(len(points), n_trainings).sum(axis=1)
    return n_stuck


def draw(chance: Callable[[Array], Array], points: Array, n_trainings: int, seed: int, first: int = 0) -> Array:
    """`Train` of a surface whose rates are known."""
    return np.random.default_rng([seed, first]).binomial(n_trainings, chance(points)).astype(np.float64)


def wave(points: Array) -> Array:
    """Stuck beyond x = 0.35 + sin(2.5 pi y) / 4."""
    return np.asarray(special.expit(12 * (points[:, 0] - 0.35 - 0.25 * np.sin(2.5 * np.pi * points[:, 1]))))


def island(points: Array) -> Array:
    """Stuck within 0.22 of (0.7, 0.3)."""
    return np.asarray(special.expit(20 * (0.22 - np.hypot(points[:, 0] - 0.7, points[:, 1] - 0.3))))


def _axis(ends: tuple[float, float]) -> Float:
    return Float(low=ends[0], high=ends[1], log=True)


def _value(ends: tuple[float, float], share: float) -> float:
    return float(np.clip(ends[0] * (ends[1] / ends[0]) ** share, *ends))


def _point(init_sigma: Any, learning_rate: Any) -> tuple[float, ...]:
    pairs = ((init_sigma, SIGMA), (learning_rate, RATE))
    return tuple(float(np.log(value / low) / np.log(high / low)) for value, (low, high) in pairs)


def _lattice(n_axis: int) -> Array:
    axis = np.linspace(0, 1, n_axis)
    return np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)


if __name__ == "__main__":
    main()
