"""Study of docs/notes/precision.md: the init_sigma below which trainings end at a zero of the gradient, by
floating-point type (sweep `precision_border`); and for full models, with keys and queries merged into one matrix or as
two.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import border_row, share_row, value_row
from attnsweep.reproduction.studies.borders import half_point
from attnsweep.reproduction.studies.metric_laws import fastest_rate
from attnsweep.reproduction.trained import one_thread, queried, swept, trained
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.lbfgs import TOLERANCE_CHANGE
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.vocabulary import AT_LEVEL

WORKLOAD = CategoryPairs()
N, M = 5, 8
UNIT_ROUNDOFF = {"bfloat16": 2.0**-9, "float32": 2.0**-24, "float64": 2.0**-53}
LEARNING_RATE, N_FIRST_ORDER = 0.03, 32
FIRST_ORDER_SIGMAS = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005)
_FORMS = {"merged": 2, "factored": 3}
_ENDS = """
select param_qk, param_dtype, param_init_sigma, outcome = 'degenerate_zero', certificate, certified from trainings
"""
_WITHIN = 2.0
"""The derived and the measured border agree if they differ by at most this factor."""


def derived_border(dtype: str, form: str) -> float:
    """Returns the init_sigma below which, according to theory, L-BFGS stops at the start of a training, because it
    cannot see the loss change at the given floating-point precision.

    L-BFGS stops where |gradient|^2 = max(u L, tolerance), with the unit roundoff u of the floating-point type and the
    loss L at the start, M - 1 for M positions. At a start of size sigma, the expected |gradient|^2 is c sigma^2 if two
    matrices are trained, k^t q and v, and 3 M c sigma^4 / 2 if three are (k and q of M rows, and v). Half of c comes
    from v, the other half from the merged k^t q: see docs/notes/precision.md, the border by precision.
    """
    K = M - 1
    half = (2 / N) ** 2 * K * (N + M - 1)
    visible = max(UNIT_ROUNDOFF[dtype] * K, TOLERANCE_CHANGE)
    return math.sqrt(visible / (2 * half)) if form == "merged" else (visible / (3 * M * half)) ** 0.25


def reproduce(directory: Path, console: Console) -> Comparison:
    """Runs the sweep of 2,304 small models, most of them near the init_sigma at which half of the trainings are stuck,
    and compares this init_sigma with theory.
    """
    return compare(swept("precision_border", directory, console), console)


def compare(sweep: SweepDirectory, console: Console, first_seed: int = 0) -> Comparison:
    """Compares with theory the init_sigma at which half of the trainings are stuck: with L-BFGS, and with gradient
    descent in bfloat16.
    """
    console.print("gradient descent in bfloat16")
    return Comparison(
        title="Below which initialization does rounding hold a training at the zero?",
        source="attnsweep, docs/notes/precision.md",
        rows=[*sweep_rows(sweep), *first_order_rows(FIRST_ORDER_SIGMAS, range(first_seed, first_seed + N_FIRST_ORDER))],
        notes=[
            "Border: the sigma at which half of the trainings end at the zero, by logistic regression on log sigma; "
            "the interval is the profile likelihood's, wider where the shares scatter by more than chance.",
            f"The derived border agrees if it is within a factor of {_WITHIN:g} of ours.",
        ],
    )


def sweep_rows(sweep: SweepDirectory) -> list[ComparedValue]:
    """Compares with theory the init_sigma at which half of the trainings with L-BFGS get stuck. Also counts how many of
    the stuck trainings do not get stuck when they are repeated in float64."""
    ends = queried(sweep, _ENDS)
    rows: list[ComparedValue] = []
    for form, n_factors in _FORMS.items():
        for dtype in UNIT_ROUNDOFF:
            chosen = [row for row in ends if row[:2] == (form, dtype)]
            sigma, is_zero = np.array([[row[2], row[3]] for row in chosen], dtype=np.float64).T
            name = f"{n_factors} factors, {dtype}: border in init_sigma"
            rows.append(_border_row(name, sigma, is_zero, derived_border(dtype, form)))
    for dtype in ("bfloat16", "float32"):
        tested = [row[5] for row in ends if row[1] == dtype and row[4] == "promotion"]
        if tested:
            rows.append(share_row(f"{dtype}: stuck trainings that float64 frees", tested.count(False), len(tested)))
    return rows


def first_order_rows(sigmas: tuple[float, ...], seeds: range) -> list[ComparedValue]:
    """Compares with theory the init_sigma at which half of the trainings by gradient descent in bfloat16 are stuck.

    Keys and queries are two matrices; the trainings last eight times the derived time to leave the gradient's zero.
    """
    n, m = 5, 6
    growth = LEARNING_RATE * fastest_rate(n, m)
    values: dict[str, Value] = {"n_categories": n, "n_positions": m, "qk": "factored", "dtype": "bfloat16"}
    with one_thread():
        plain, with_state = (
            np.concatenate([_is_held(seeds, values | {"float32_state": kept}, sigma, growth) for sigma in sigmas])
            for kept in (False, True)
        )
    name = "3 factors, gradient descent in bfloat16: border in init_sigma"
    derived = UNIT_ROUNDOFF["bfloat16"] / growth
    state = "  at the zero with float32_state, over the same sigmas"
    return [
        _border_row(name, np.repeat(sigmas, len(seeds)), plain.astype(np.float64), derived),
        share_row(state, int(with_state.sum()), with_state.size),
    ]


def _is_held(seeds: range, values: dict[str, Value], sigma: float, growth: float) -> NDArray[np.bool_]:
    """Returns which trainings end stuck where their gradient is 0: their final loss is within 1% of the loss there,
    which is 1.
    """
    ends = {"init_sigma": sigma, "n_steps": round(4 / (sigma * growth)), "learning_rate": LEARNING_RATE}
    return np.asarray(trained(WORKLOAD, seeds, values | ends).result.last("eval_loss") > 1.0 - AT_LEVEL)


def _border_row(name: str, sigma: NDArray[np.float64], is_zero: NDArray[np.float64], derived: float) -> ComparedValue:
    border, low, high = half_point(np.log(sigma), is_zero)
    agrees = abs(border - math.log(derived)) < math.log(_WITHIN)
    return border_row(name, border, low, high, published=f"{derived:.2g} (derived)", agrees=agrees)


FORM_SIGMAS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
N_FORM_SEEDS = 8
FULL_VALUES: dict[str, Value] = {
    **{"n_categories": 10, "n_positions": 20, "expectation": "fixed_sample", "batch_size": 256},
    **{"optimizer": "lbfgs", "learning_rate": 1.0, "n_steps": 250},
}


def reproduce_forms(
    directory: Path,
    console: Console,
    sigmas: tuple[float, ...] = FORM_SIGMAS,
    seeds: range = range(N_FORM_SEEDS),
    values: Mapping[str, Value] = FULL_VALUES,
) -> Comparison:
    """Finds the init_sigma at which half of a model's trainings end where the gradient is 0: once with keys and queries
    trained as two matrices, and once with their product trained as one.

    The models are the variants whose attention depends on positions only.
    """
    del directory
    n_seeds = len(seeds)
    rows = []
    with one_thread():
        for variant in ("solution_3", "solution_1"):
            borders = {}
            for form in ("factored", "merged"):
                console.print(f"training {variant}, {form}")
                counts = [_zeros(seeds, {**values, "variant": variant, "qk": form, "init_sigma": s}) for s in sigmas]
                for sigma, n_zeros in zip(sigmas, counts, strict=True):
                    rows.append(share_row(f"{variant}, {form}, sigma {sigma:g}: at the zero", n_zeros, n_seeds))
                borders[form] = _border(sigmas, counts, n_seeds)
                rows.append(border_row(f"{variant}, {form}: border in init_sigma", *borders[form]))
            decades = (borders["factored"][0] - borders["merged"][0]) / math.log(10)
            if math.isfinite(decades):
                name, predicted = f"{variant}: decades between the borders", "more than 1 (predicted)"
                rows.append(value_row(name, decades, predicted, agrees=decades > 1))
    return Comparison(
        title="The stuck border of the full models: k and q trained, or k^t q as one matrix",
        source="attnsweep, docs/notes/precision.md",
        rows=rows,
        notes=["float64, L-BFGS, skip, no softmax. Border: where half of the trainings end at the zero."],
    )


def _zeros(seeds: range, values: dict[str, Value]) -> int:
    return int((trained(WORKLOAD, seeds, values).outcome == "degenerate_zero").sum())


def _border(sigmas: tuple[float, ...], counts: list[int], n_seeds: int) -> tuple[float, float, float]:
    x = np.repeat(np.log(sigmas), n_seeds)
    holds = np.concatenate([np.arange(n_seeds) < count for count in counts]).astype(np.float64)
    return half_point(x, holds)
