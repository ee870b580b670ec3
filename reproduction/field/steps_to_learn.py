"""Studies of modular addition and sparse parity (docs/problems): the number of steps until a transformer has memorized
sums and can add other numbers, and until a network has learned the product of k of n signs.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console

from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import (
    ABOVE_ZERO,
    bounded_difference_row,
    estimate_row,
    mean_difference_row,
    median_row,
    share_row,
    value_row,
)
from attnsweep.reproduction.trained import queried, swept
from attnsweep.search_spaces import Categorical
from attnsweep.search_spaces.loading import load_sweep

_EVENTS = """
select param_weight_decay as weight_decay, param_train_fraction as fraction, param_n_steps as budget,
    list(event_memorized order by trial, replicate) as memorized,
    list(event_generalized order by trial, replicate) as generalized
from trainings group by all order by all
"""
_KEY = """
select outcome = 'solved', list(value order by training_id) from trainings join curves using (training_id)
where metric = 'key_frequencies' and curves.step = trainings.n_steps and outcome in ('solved', 'memorized') group by all
"""
_SIZES = {"p": 113, "d_model": 128, "d_ffn": 512}
_NANDA = _SIZES | {"init_sigma": 128**-0.5, "learning_rate": 1e-3, "warmup_steps": 10, "n_steps": 50_000}
_POWER = 1.40, 1.50
_N_DRAWS = 4000


@dataclass(frozen=True, slots=True)
class Cell:
    """Trainings on modular addition with one configuration: the step at which each memorized its training pairs, and
    the step at which it generalized to other pairs.

    Attributes:
        weight_decay, fraction, budget: The parameters of the configuration.
        memorized, generalized: The step of each event for each training; infinite if the event did not happen.
    """

    weight_decay: float
    fraction: float
    budget: int
    memorized: np.ndarray
    generalized: np.ndarray


def compare_weight_decay(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Compares the values of weight decay in a finished sweep of modular addition: how many trainings generalize, at
    which step, and how few Fourier frequencies their embeddings have.
    """
    del directory
    cells = _cells(sweep)
    rows: list[ComparedValue] = []
    for cell in cells:
        name = f"weight decay {cell.weight_decay:g}"
        rows.append(_share(f"{name}: memorized", cell.memorized))
        rows.append(_share(f"{name}: generalized within {cell.budget:,} steps", cell.generalized))
    little, middle, much = cells
    for other in (little, much):
        name = f"share generalized, weight decay {middle.weight_decay:g} minus {other.weight_decay:g}"
        more, fewer = (np.isfinite(cell.generalized).tolist() for cell in (middle, other))
        rows.append(bounded_difference_row(name, more, fewer, (0.0, 1.0), published="more", agrees_within=ABOVE_ZERO))
    for event, after in (("memorized", None), ("generalized", None), ("generalized", "memorized")):
        rows += _medians(sweep, event, after)
    frequencies = dict(queried(sweep, _KEY))
    if all(len(frequencies.get(is_solved, ())) > 1 for is_solved in (True, False)):
        name = "share of the embedding in its 5 largest frequencies, solved minus memorized"
        few = "larger: a few key frequencies"
        rows.append(mean_difference_row(name, frequencies[True], frequencies[False], published=few))
    return Comparison(
        title="Grokking of modular addition by weight decay",
        source="Manir & Rupa 2026, arXiv 2603.25009; Nanda et al. 2023, arXiv 2301.05217",
        rows=rows,
        notes=[
            "Memorized: 99% of the pairs trained on are right. Generalized: 95% of the others are.",
            "Published: a narrow regime in which it groks, while too little or too much weight decay prevents it.",
        ],
    )


def compare_data(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Each 1% of the pairs that is taken out of the training data multiplies the number of steps after which modular
    addition generalizes. Compares this factor with that of Power et al.
    """
    del directory
    cells = _cells(sweep)
    rows: list[ComparedValue] = []
    for cell in cells:
        name = f"{cell.fraction:.0%} of the pairs: generalized within {cell.budget:,} steps"
        rows.append(_share(name, cell.generalized))
    rows += [*_medians(sweep, "memorized", None), *_medians(sweep, "generalized", None)]
    for few, many in pairwise(cells):
        name = f"steps to generalize, times for each 1% less data, {many.fraction:.0%} to {few.fraction:.0%}"
        published, (ours, low, high) = "1.4 to 1.5, at 25 to 30% of the pairs", per_percent(few, many)
        if math.isfinite(high):
            rows.append(estimate_row(name, ours, low, high, published=published, agrees_within=_POWER))
        else:
            rows.append(value_row(name, f"above {low:.3g}" if low else "not known", published))
    return Comparison(
        title="Steps until a transformer can add, by the share of pairs that it is trained on",
        source="Power et al. 2022, arXiv 2201.02177",
        rows=rows,
        notes=[
            "Power et al.: the median of steps until 99% of the other products in the group S5 are right.",
            "Here: 95% of the other sums, a smaller transformer, larger shares of the pairs.",
        ],
    )


def reproduce_full_weight_decay(directory: Path, console: Console) -> Comparison:
    """Repeats the sweep over weight decays for modular addition at the size of Nanda et al.: modulus p = 113, training
    on 30% of the pairs of numbers, 50,000 steps."""
    sizes = _NANDA | {"train_fraction": 0.3}
    return compare_weight_decay(_full("modular_addition", sizes, directory, console), directory)


def reproduce_full_data(directory: Path, console: Console) -> Comparison:
    """Repeats, with a model of the size of Nanda et al.'s, the sweep that varies how many of the number pairs of
    modular addition are trained on: here 25 to 30% of them.
    """
    sizes = _NANDA | {"train_fraction": Categorical(choices=(0.25, 0.275, 0.3))}
    return compare_data(_full("modular_addition_data", sizes, directory, console), directory)


def per_percent(few: Cell, many: Cell) -> tuple[float, float, float]:
    """Returns the factor by which the median number of steps to generalization falls for each percent of training data
    that is added, with a bootstrap interval.

    A median is infinite if less than half of a sample reaches the goal. The ratio of two infinite medians is unknown:
    anything from 0 up.
    """
    draws = np.random.default_rng(0).random((2, _N_DRAWS, max(len(few.generalized), len(many.generalized))))
    percents = 100 * (many.fraction - few.fraction)

    def ratio(few_steps: Any, many_steps: Any) -> Any:
        with np.errstate(invalid="ignore"):
            return (np.median(few_steps, axis=-1) / np.median(many_steps, axis=-1)) ** (1 / percents)

    drawn = ratio(*(_drawn(cell.generalized, uniform) for cell, uniform in zip((few, many), draws, strict=True)))
    low = np.quantile(np.nan_to_num(drawn, nan=0.0, posinf=math.inf), 0.025, method="nearest")
    high = np.quantile(np.nan_to_num(drawn, nan=math.inf, posinf=math.inf), 0.975, method="nearest")
    return float(ratio(few.generalized, many.generalized)), float(low), float(high)


def _drawn(values: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    drawn: np.ndarray = values[(uniform[:, : len(values)] * len(values)).astype(int)]
    return drawn


def _cells(sweep: SweepDirectory) -> list[Cell]:
    return [
        Cell(weight_decay, fraction, budget, _steps(memorized), _steps(generalized))
        for weight_decay, fraction, budget, memorized, generalized in queried(sweep, _EVENTS)
    ]


def _share(name: str, steps: np.ndarray) -> ComparedValue:
    return share_row(name, int(np.isfinite(steps).sum()), len(steps))


def _steps(steps: Iterable[int | None]) -> np.ndarray:
    return np.array([math.inf if step is None else step for step in steps])


def _medians(sweep: SweepDirectory, event: str, after: str | None) -> list[ComparedValue]:
    [by] = [name for name, dimension in sweep.spec.space.items() if isinstance(dimension, Categorical)]
    medians = SweepData.open(sweep.place).event(event, by=by, after=after).medians().to_pylist()
    return [
        ComparedValue(
            name=f"{by} {row['group']}: half have {event}" + (f", steps after {after}" if after else ", step"),
            published=None,
            ours="not reached" if row["half_step"] is None else row["half_step"],
            low=row["low"],
            high=row["high"],
        )
        for row in medians
    ]


def _full(name: str, sizes: Any, directory: Path, console: Console) -> SweepDirectory:
    shipped, full_name = load_sweep(name), f"{name}_full"
    full = shipped.but(name=full_name, space={**shipped.space, **sizes})
    return swept(full_name, directory, console, changed=full)


_PARITY_CELLS = """
select param_k as k, param_n_bits as n, param_n_steps as budget, list(event_learned order by trial, replicate) as steps
from trainings group by all order by all
"""
_T_975 = 1.96
"""The quantile of the normal distribution, which replaces Student's t because there are hundreds of trainings."""


def compare_parity(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reports how many trainings learn a sparse parity: the product of k of n inputs, which are 1 or -1. For each k,
    estimates by which power of n the number of steps until it is learned grows, and compares this power with the
    published bound.
    """
    del directory
    cells = queried(sweep, _PARITY_CELLS)
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


def reproduce_full_parity(directory: Path, console: Console) -> Comparison:
    """Repeats the sweep of sparse parity at Hu et al.'s width, 1,000, and for more numbers of inputs (n)."""
    shipped, name = load_sweep("sparse_parity"), "sparse_parity_full"
    sizes = {"width": 1000, "n_steps": 100_000, "n_bits": Categorical(choices=(10, 20, 30, 40, 50))}
    full = shipped.but(name=name, space={**shipped.space, **sizes}, trials=15)
    return compare_parity(swept(name, directory, console, changed=full), directory)


def power(sizes: ArrayLike, steps: ArrayLike) -> tuple[float, float, float]:
    """Fits the exponent of a power law between sizes and steps by least squares on their logarithms. Returns the
    exponent and its 95% interval.
    """
    x, y = (np.log(np.asarray(values, np.float64)) for values in (sizes, steps))
    x -= x.mean()
    slope = float(x @ y / (x @ x))
    residual = y - y.mean() - slope * x
    half = _T_975 * math.sqrt(float(residual @ residual) / (len(x) - 2) / float(x @ x))
    return slope, slope - half, slope + half
