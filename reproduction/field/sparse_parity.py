"""docs/problems/sparse_parity.md: the steps needed to learn a product of k of n signs, from the sweep
`sparse_parity`."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import estimate_row, median_row, share_row
from attnsweep.reproduction.trained import queried, swept
from attnsweep.search_spaces import Categorical
from attnsweep.search_spaces.loading import load_sweep

_CELLS = """
select param_k as k, param_n_bits as n, param_n_steps as budget, list(event_learned order by trial, replicate) as steps
from trainings group by all order by all
"""
_T_975 = 1.96
"""The quantile of the normal distribution, which replaces Student's t because there are hundreds of trainings."""


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares the rate of trainings that learn, by n and k, and fits for each k the power of n by which the number of
    steps grows.
    """
    del directory
    cells = queried(sweep, _CELLS)
    rows: list[ComparedValue] = []
    for k, n, budget, steps in cells:
        learned = [step for step in steps if step is not None]
        name = f"k = {k}, n = {n}"
        rows.append(share_row(f"{name}: learned within {budget:,} steps", len(learned), len(steps)))
        if len(learned) == len(steps):
            rows.append(median_row(f"{name}: steps, median", learned, published=None))
    for k in sorted({cell[0] for cell in cells}):
        pairs = [(n, step) for k_of_cell, n, _, steps in cells if k_of_cell == k for step in steps if step is not None]
        slope, low, high = power(*zip(*pairs, strict=True))
        name, published = f"k = {k}: power of n that the steps grow by", "n^O(k)"
        rows.append(estimate_row(name, slope, low, high, published=published, agrees_within=(0.0, float(k))))
    return Comparison(
        title="Steps until the parity of k of n signs is learned",
        source="Barak et al. 2022, arXiv 2207.08799; settings of Hu et al. 2023 (arXiv 2308.09543), with width 100",
        rows=rows,
        notes=[
            "Signs are fresh at each step, as in Barak et al.; Hu et al. train on 1,000 of them.",
            "A training has learned at the first probe (every 10 steps) with 98% of 512 held-out signs right.",
            "n^O(k) is taken to mean a power between 0 and k.",
        ],
    )


def reproduce_full(directory: Path, console: Console) -> Comparison:
    """Repeats the sweep at Hu et al.'s width, 1,000, and for more values of n."""
    shipped, name = load_sweep("sparse_parity"), "sparse_parity_full"
    sizes = {"width": 1000, "n_steps": 100_000, "n_bits": Categorical(choices=(10, 20, 30, 40, 50))}
    full = shipped.but(name=name, space={**shipped.space, **sizes}, trials=15)
    return compare(swept(name, directory, console, changed=full), directory)


def power(sizes: ArrayLike, steps: ArrayLike) -> tuple[float, float, float]:
    """Fits the power a in steps ~ sizes^a by least squares on logarithms. Returns a and its 95% interval."""
    x, y = (np.log(np.asarray(values, np.float64)) for values in (sizes, steps))
    x -= x.mean()
    slope = float(x @ y / (x @ x))
    residual = y - y.mean() - slope * x
    half = _T_975 * math.sqrt(float(residual @ residual) / (len(x) - 2) / float(x @ x))
    return slope, slope - half, slope + half
