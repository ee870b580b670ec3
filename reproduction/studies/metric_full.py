"""Does training k^t q as one matrix move the stuck border of the full models in init_sigma? In float64."""

import math
from pathlib import Path

import numpy as np
from rich.console import Console

from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import border_row, share_row
from attnsweep.reproduction.studies.half_point import half_point
from attnsweep.reproduction.threads import one_thread
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()
SIGMAS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
N_SEEDS = 8
VALUES: dict[str, Value] = {
    "n_categories": 10,
    "n_positions": 20,
    "expectation": "fixed_sample",
    "batch_size": 256,
    "optimizer": "lbfgs",
    "learning_rate": 1.0,
    "n_steps": 250,
}


def reproduce(directory: Path, console: Console) -> Comparison:  # noqa: ARG001
    """Trains solutions 1 and 3 from ever smaller starts, in both forms."""
    return compare(console, SIGMAS, range(N_SEEDS), VALUES)


def compare(console: Console, sigmas: tuple[float, ...], seeds: range, values: dict[str, Value]) -> Comparison:
    """The study at some starts, with these seeds each, of models with these values."""
    n_seeds = len(seeds)
    rows = []
    with one_thread():
        for variant in ("solution_3", "solution_1"):
            borders = {}
            for form in ("factored", "merged"):
                console.print(f"training {variant}, {form}")
                counts = [_zeros(seeds, values | {"variant": variant, "qk": form, "init_sigma": s}) for s in sigmas]
                for sigma, n_zeros in zip(sigmas, counts, strict=True):
                    rows.append(share_row(f"{variant}, {form}, sigma {sigma:g}: at the zero", n_zeros, n_seeds))
                borders[form] = _border(sigmas, counts, n_seeds)
                rows.append(border_row(f"{variant}, {form}: border in init_sigma", *borders[form]))
            decades = (borders["factored"][0] - borders["merged"][0]) / math.log(10)
            if not math.isfinite(decades):
                continue
            rows.append(
                ComparedValue(
                    name=f"{variant}: decades between the borders",
                    published="more than 1 (predicted)",
                    ours=decades,
                    agrees=decades > 1,
                )
            )
    return Comparison(
        title="The stuck border of the full models: k and q trained, or k^t q as one matrix",
        source="attnsweep, docs/zeros.md",
        rows=rows,
        notes=["float64, L-BFGS, skip, no softmax. Border: where half of the trainings end at the zero."],
    )


def _zeros(seeds: range, values: dict[str, Value]) -> int:
    """How many of these trainings end at the zero."""
    parameters = defaults(WORKLOAD, **values)
    pack = Pack(WORKLOAD, [Training(parameters, seed) for seed in seeds])
    while not pack.advance(10_000):
        pass
    result = pack.result()
    outcome = result.at_last_probe(judged(WORKLOAD, parameters, result.evidence).outcome)
    return int((outcome == "degenerate_zero").sum())


def _border(sigmas: tuple[float, ...], counts: list[int], n_seeds: int) -> tuple[float, float, float]:
    x = np.repeat(np.log(sigmas), n_seeds)
    holds = np.concatenate([np.arange(n_seeds) < count for count in counts]).astype(np.float64)
    return half_point(x, holds)
