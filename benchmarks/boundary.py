"""The sampler `boundary` against random draws and a grid: how many trials does each need to locate the boundary?

    python benchmarks/boundary.py [--repeats 5] [--out benchmarks/boundary.json] [--quick]

`system_p`: `positions_only`, 4 categories, 6 positions, 150 steps of gradient descent over init_sigma and
learning_rate, both logarithmic. The truth is a grid of 24 x 24 points with 32 trainings each: is the share of stuck
trainings above or below one half? Points whose share is within 0.09 of one half may be on either side
(`unclear_share`). `wave` and `island` are known surfaces of rates over the same two axes; their trainings are drawn at
these rates.

A design spends trials of 8 trainings. The same surface (`attnsweep.search_spaces.boundary`) is fitted to what each
design found; its error is the share of the grid's points that it puts on the wrong side. `boundary` is asked through
the study, eight trials at a time, and seeded like a sweep. Trainings are fused in this process: no Ray, no ledger.
`trials_to_reach` is the number of trials after which a design's mean error stays at or below each target; null: never.
`--quick` takes small sizes, only to see that it runs.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from harness import main
from numpy.typing import NDArray
from scipy import special

from attnsweep.orchestrator.running.study import Study
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.tasks import training_seed
from attnsweep.search_spaces import Float, Sweep
from attnsweep.search_spaces.boundary import Counts, StuckSurface
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.vocabulary import STUCK_OUTCOMES

Array = NDArray[np.float64]
Train: TypeAlias = Callable[[Array, int, int, int], Array]
"""How many trainings end stuck at each point: of points (n, 2) of the unit square, how many are trained at each, the
seed of the design, and the index of the first point in it."""

BUDGETS = (16, 25, 36, 49, 64, 100)
N_REPLICATES, BATCH, N_TRUTH, PACK = 8, 8, 32, 512
TARGETS = (0.03, 0.02, 0.01)
ENDS = {"init_sigma": (1e-4, 3.0), "learning_rate": (1e-4, 5e-2)}
FIXED: dict[str, Any] = {"variant": "positions_only", "n_categories": 4, "n_positions": 6, "n_steps": 150}


def measure(*, repeats: int = 5, quick: bool = False) -> dict[str, Any]:
    """Measures all problems, with so many sweeps of each design."""
    torch.set_num_threads(1)
    budgets, seeds = (BUDGETS[:3], range(1)) if quick else (BUDGETS, range(repeats))
    lattice, n_truth = _lattice(12 if quick else 24), 8 if quick else N_TRUTH
    problems = {
        "system_p": Problem(train, lattice, train(lattice, n_truth, 2**40, 0) / n_truth),
        "wave": Problem(partial(draw, wave), lattice, wave(lattice)),
        "island": Problem(partial(draw, island), lattice, island(lattice)),
    }
    return {
        "parameters": FIXED | ENDS,
        "trainings_per_trial": N_REPLICATES,
        "repeats": len(seeds),
        **{name: _measured(problem, budgets, seeds) for name, problem in problems.items()},
    }


@dataclass(frozen=True)
class Problem:
    """A problem to train, and the stuck rate at each point of a fine grid."""

    train: Train
    points: Array
    share: Array

    def error(self, points: Array, n_stuck: Array) -> float:
        """The share of the grid that a surface of these trials puts on the wrong side."""
        counts = Counts(points, n_stuck, np.full(len(points), float(N_REPLICATES)))
        mean, _ = StuckSurface.fit(counts).logit(self.points)
        return float(np.mean((mean > 0) != (self.share > 0.5)))


def _measured(problem: Problem, budgets: Sequence[int], seeds: range) -> dict[str, Any]:
    """The errors of each design after each budget."""
    unclear = np.abs(problem.share - 0.5) < 0.09
    found: dict[str, Any] = {"stuck_share": float(np.mean(problem.share > 0.5)), "unclear_share": float(unclear.mean())}
    for design in (boundary, random, grid):
        errors = np.array([design(problem, budgets, seed) for seed in seeds])
        mean, spread = errors.mean(0), errors.std(0, ddof=1) / len(errors) ** 0.5 if len(errors) > 1 else None
        stays = np.maximum.accumulate(mean[::-1])[::-1]
        reached = {target: np.flatnonzero(stays <= target) for target in TARGETS}
        found[design.__name__] = {
            "error": {budget: round(float(each), 4) for budget, each in zip(budgets, mean, strict=True)},
            "standard_error": None if spread is None else dict(zip(budgets, spread.round(4).tolist(), strict=True)),
            "trials_to_reach": {target: budgets[at[0]] if len(at) else None for target, at in reached.items()},
        }
    return found


def boundary(problem: Problem, budgets: Sequence[int], seed: int) -> list[float]:
    """The errors of a sweep that asks the sampler, after each budget."""
    drawn = {name: Float(low=low, high=high, log=True) for name, (low, high) in ENDS.items()}
    course: dict[str, Any] = {"sampler": "boundary", "trials": max(budgets), "replicates": N_REPLICATES, "seed": seed}
    spec = Sweep(name="boundary", workload="category_pairs", space={**FIXED, **drawn}, **course)
    points, n_stuck = np.zeros((0, 2)), np.zeros(0)
    with tempfile.TemporaryDirectory() as place:
        study = Study(SweepDirectory.create(Path(place) / "s", spec, {}))
        while study.n_left:
            asked = [study.ask() for _ in range(min(BATCH, study.n_left))]
            batch = np.array([_point(each.values) for each in asked])
            ended = problem.train(batch, N_REPLICATES, seed, asked[0].trial)
            for configuration, k in zip(asked, ended, strict=True):
                study.tell(configuration.trial, k / N_REPLICATES, N_REPLICATES)
            points, n_stuck = np.concatenate([points, batch]), np.concatenate([n_stuck, ended])
    return [problem.error(points[:budget], n_stuck[:budget]) for budget in budgets]


def random(problem: Problem, budgets: Sequence[int], seed: int) -> list[float]:
    """The errors of independent draws; a smaller budget is the first part of a larger one."""
    points = np.random.default_rng(seed).random((max(budgets), 2))
    n_stuck = problem.train(points, N_REPLICATES, seed, 0)
    return [problem.error(points[:budget], n_stuck[:budget]) for budget in budgets]


def grid(problem: Problem, budgets: Sequence[int], seed: int) -> list[float]:
    """The errors of square grids, ends included."""
    grids = [_lattice(round(budget**0.5)) for budget in budgets]
    return [problem.error(points, problem.train(points, N_REPLICATES, seed, 0)) for points in grids]


def train(points: Array, n_trainings: int, seed: int, first: int) -> Array:
    """`Train` of system P."""
    workload = CategoryPairs()
    trainings = [
        Training(defaults(workload, **FIXED, **_values(point)), training_seed(seed, trial, replicate))
        for trial, point in enumerate(points, start=first)
        for replicate in range(n_trainings)
    ]
    stuck: list[bool] = []
    for start in range(0, len(trainings), PACK):
        result = Pack(workload, trainings[start : start + PACK]).train_to_end()
        outcome = result.at_last_probe(judged(workload, trainings[0].parameters, result.evidence).outcome)
        stuck += (np.isin(outcome, STUCK_OUTCOMES) & (result.diverged_step < 0)).tolist()
    n_stuck: Array = np.array(stuck, dtype=np.float64).reshape(len(points), n_trainings).sum(axis=1)
    return n_stuck


def draw(chance: Callable[[Array], Array], points: Array, n_trainings: int, seed: int, first: int) -> Array:
    """`Train` of a surface whose rates are known."""
    return np.random.default_rng([seed, first]).binomial(n_trainings, chance(points)).astype(np.float64)


def wave(points: Array) -> Array:
    """Stuck beyond x = 0.35 + sin(2.5 pi y) / 4."""
    return np.asarray(special.expit(12 * (points[:, 0] - 0.35 - 0.25 * np.sin(2.5 * np.pi * points[:, 1]))))


def island(points: Array) -> Array:
    """Stuck within 0.22 of (0.7, 0.3)."""
    return np.asarray(special.expit(20 * (0.22 - np.hypot(points[:, 0] - 0.7, points[:, 1] - 0.3))))


def _values(point: Array) -> dict[str, float]:
    shares = zip(ENDS.items(), point, strict=True)
    return {name: float(np.clip(low * (high / low) ** share, low, high)) for (name, (low, high)), share in shares}


def _point(values: Any) -> tuple[float, ...]:
    return tuple(float(np.log(values[name] / low) / np.log(high / low)) for name, (low, high) in ENDS.items())


def _lattice(n_axis: int) -> Array:
    axis = np.linspace(0, 1, n_axis)
    return np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)


if __name__ == "__main__":
    main(measure)
