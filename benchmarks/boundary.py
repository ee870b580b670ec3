"""Where does system P begin to stay stuck? The sampler `boundary` against random draws and a grid, by trials spent.

    python benchmarks/boundary.py [--repeats 5] [--out benchmarks/boundary.json] [--quick]

System P (`positions_only`, 4 categories, 6 positions, 150 steps of gradient descent) over init_sigma and learning_rate,
both logarithmic. The truth is a grid of 24 x 24 points with 32 trainings each: which side of one half each is on. A
design spends trials of 8 trainings; the same surface (`search_spaces.surface`) is fitted to what each design found, and
its error is the share of the grid's points that it puts on the wrong side. `boundary` is asked through the study, eight
trials at a time; it is seeded like a sweep. Trainings are fused in this process: no Ray, no ledger.

`trials_to_reach` says after how many trials a design's mean error is at most `target` and stays there; null: never. The
truth's own error: points whose share of 32 is within 0.09 of one half may be on either side (`unclear_share`).
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from orchestrator.records import PackContext, trained_rows
from orchestrator.study import Study
from orchestrator.sweep_directory import SweepDirectory
from orchestrator.tasks import Task, training_seed
from search_spaces import Float, Sweep
from search_spaces.surface import Counts, StuckSurface
from workloads.category_pairs import CategoryPairs
from workloads.engine.contract import Training
from workloads.engine.pack import Pack
from workloads.testing import defaults

Array = NDArray[np.float64]

BUDGETS = (16, 25, 36, 49, 64, 100, 144)
N_REPLICATES, BATCH, N_TRUTH, PACK = 8, 8, 32, 512
SIGMA, RATE = (1e-4, 3.0), (1e-4, 5e-2)
FIXED: dict[str, Any] = {"variant": "positions_only", "n_categories": 4, "n_positions": 6, "n_steps": 150}


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="sweeps of each design, seeded apart")
    parser.add_argument("--target", type=float, default=0.02, help="the error to reach")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run?")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    budgets = BUDGETS[:3] if options.quick else BUDGETS
    truth = Truth(12 if options.quick else 24, 8 if options.quick else N_TRUTH)
    repeats = range(1 if options.quick else options.repeats)
    content: dict[str, Any] = {
        "benchmark": "boundary",
        "name": platform.machine(),
        "load": [round(each, 1) for each in os.getloadavg()],
        "parameters": {**FIXED, "init_sigma": SIGMA, "learning_rate": RATE},
        "trainings_per_trial": N_REPLICATES,
        "repeats": len(repeats),
        "target": options.target,
        "truth": {"points": len(truth.points), "stuck_share": truth.stuck_share, "unclear_share": truth.unclear_share},
    }
    for design in (boundary, random, grid):
        errors = design(truth, budgets, repeats)
        mean = {budget: float(np.mean(each)) for budget, each in errors.items()}
        reached = [budget for budget in budgets if all(mean[b] <= options.target for b in budgets if b >= budget)]
        content[design.__name__] = {
            "error": {str(budget): round(each, 4) for budget, each in mean.items()},
            "standard_error": {
                str(budget): round(float(np.std(each, ddof=1) / len(each) ** 0.5), 4) if len(each) > 1 else None
                for budget, each in errors.items()
            },
            "trials_to_reach": min(reached, default=None),
        }
    content["seconds"] = round(time.perf_counter() - started, 1)
    text = json.dumps(content, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


class Truth:
    """Which side of one half each point of a fine grid is on."""

    def __init__(self, n_axis: int, n_trainings: int) -> None:
        self.points = _lattice(n_axis)
        share = train(self.points, n_trainings, seed=2**40) / n_trainings
        self._stuck = share > 0.5
        self.stuck_share = float(self._stuck.mean())
        self.unclear_share = float(np.mean(np.abs(share - 0.5) < 0.09))

    def error(self, points: Array, n_stuck: Array) -> float:
        """The share of the grid that a surface of these trials puts on the wrong side."""
        counts = Counts(points, n_stuck, np.full(len(points), float(N_REPLICATES)))
        mean, _ = StuckSurface.fit(counts).logit(self.points)
        return float(np.mean((mean > 0) != self._stuck))


Design = Callable[[Truth, Sequence[int], range], dict[int, list[float]]]


def boundary(truth: Truth, budgets: Sequence[int], repeats: range) -> dict[int, list[float]]:
    """The errors of sweeps that ask the sampler, after each budget."""
    found: dict[int, list[float]] = {budget: [] for budget in budgets}
    for seed in repeats:
        points, n_stuck = _asked(max(budgets), seed)
        for budget in budgets:
            found[budget].append(truth.error(points[:budget], n_stuck[:budget]))
    return found


def random(truth: Truth, budgets: Sequence[int], repeats: range) -> dict[int, list[float]]:
    """The errors of independent draws; a smaller budget is the beginning of a larger one."""
    found: dict[int, list[float]] = {budget: [] for budget in budgets}
    for seed in repeats:
        points = np.random.default_rng(seed).random((max(budgets), 2))
        n_stuck = train(points, N_REPLICATES, seed)
        for budget in budgets:
            found[budget].append(truth.error(points[:budget], n_stuck[:budget]))
    return found


def grid(truth: Truth, budgets: Sequence[int], repeats: range) -> dict[int, list[float]]:
    """The errors of square grids: all of the points, ends included."""
    return {
        budget: [truth.error(points, train(points, N_REPLICATES, seed)) for seed in repeats]
        for budget in budgets
        for points in [_lattice(round(budget**0.5))]
    }


def _asked(n_trials: int, seed: int) -> tuple[Array, Array]:
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
            ended = train(batch, N_REPLICATES, seed, first=asked[0].trial)
            for configuration, k in zip(asked, ended, strict=True):
                study.tell(configuration.trial, k / N_REPLICATES, N_REPLICATES)
            points, n_stuck = np.concatenate([points, batch]), np.concatenate([n_stuck, ended])
    return points, n_stuck


def train(points: Array, n_trainings: int, seed: int, first: int = 0) -> Array:
    """How many of `n_trainings` end stuck at each point of the unit square.

    Args:
        points: (init_sigma, learning_rate), scaled.
        n_trainings: At each.
        seed: Of the design's trainings.
        first: Number of the first point in its design.
    """
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
        rows = trained_rows(workload, lanes, pack.result(), [None] * len(lanes), PackContext("b", "p", "cpu", "here"))
        stuck += rows["stuck"].to_pylist()
    n_stuck: Array = np.array(stuck, dtype=np.float64).reshape(len(points), n_trainings).sum(axis=1)
    return n_stuck


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
