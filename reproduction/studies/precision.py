"""The border of the zero by precision (docs/zeros.md), from the sweep `precision_border`. Axes: R row of the ledger."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import border_row, share_row
from attnsweep.reproduction.studies.half_point import half_point
from attnsweep.reproduction.swept import swept
from attnsweep.reproduction.threads import one_thread
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.lbfgs import TOLERANCE_CHANGE
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

N, M = 5, 8
UNIT_ROUNDOFF = {"bfloat16": 2.0**-9, "float32": 2.0**-24, "float64": 2.0**-53}
LEARNING_RATE, N_FIRST_ORDER = 0.03, 32
FIRST_ORDER_SIGMAS = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005)
_FORMS = {"merged": 2, "factored": 3}
_WITHIN = 2.0
"""The derived border agrees if the measured one is within this factor."""


def derived_border(dtype: str, form: str) -> float:
    """The sigma at which L-BFGS no longer sees the way down: |gradient|^2 = max(u L, tolerance), L = M - 1.

    At a start of size sigma, E |gradient|^2 is c sigma^2 for two factors and 3 M c sigma^4 / 2 for three (k and q of M
    rows), where c / 2 is what v, or q, gets in the merged form: docs/zeros.md, the border by precision.
    """
    K = M - 1
    half = (2 / N) ** 2 * K * (N + M - 1)
    visible = max(UNIT_ROUNDOFF[dtype] * K, TOLERANCE_CHANGE)
    return math.sqrt(visible / (2 * half)) if form == "merged" else (visible / (3 * M * half)) ** 0.25


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 2,304 small models, most of them about the border."""
    return compare(swept("precision_border", directory, console), console)


def compare(sweep: SweepDirectory, console: Console, first_seed: int = 0) -> Comparison:
    """Reads a finished sweep, and trains by gradient descent in bfloat16 with seeds from `first_seed` on."""
    console.print("gradient descent in bfloat16")
    return Comparison(
        title="Below which initialization does rounding hold a training at the zero?",
        source="attnsweep, docs/zeros.md",
        rows=[*sweep_rows(sweep), *first_order_rows(FIRST_ORDER_SIGMAS, range(first_seed, first_seed + N_FIRST_ORDER))],
        notes=[
            "Border: the sigma at which half of the trainings end at the zero, by logistic regression on log sigma; "
            "the interval is the profile likelihood's, wider where the shares scatter by more than chance.",
            f"The derived border agrees if it is within a factor of {_WITHIN:g} of ours.",
        ],
    )


def sweep_rows(sweep: SweepDirectory) -> list[ComparedValue]:
    """The borders of L-BFGS, and how many stuck trainings promotion frees."""
    with Ledger(sweep.place).reading() as connection:
        found = connection.execute(
            "select param_qk, param_dtype, param_init_sigma, outcome = 'degenerate_zero', certificate, certified"
            " from trainings"
        ).fetchall()
    rows: list[ComparedValue] = []
    for form, n_factors in _FORMS.items():
        for dtype in UNIT_ROUNDOFF:
            chosen = [row for row in found if row[:2] == (form, dtype)]
            sigma, is_zero = np.array([[row[2], row[3]] for row in chosen], dtype=np.float64).T
            name = f"{n_factors} factors, {dtype}: border in init_sigma"
            rows.append(_border_row(name, sigma, is_zero, derived_border(dtype, form)))
    for dtype in ("bfloat16", "float32"):
        tested = [row[5] for row in found if row[1] == dtype and row[4] == "promotion"]
        if tested:
            rows.append(share_row(f"{dtype}: stuck trainings that float64 frees", tested.count(False), len(tested)))
    return rows


def first_order_rows(sigmas: tuple[float, ...], seeds: range) -> list[ComparedValue]:
    """Gradient descent with three factors in bfloat16: who is still at the zero after some eight escape times."""
    n, m = 5, 6
    growth = LEARNING_RATE * 2 / n * math.sqrt((m - 1) * ((n - 1 + m) / 2 + math.sqrt(((m - n + 1) / 2) ** 2 + n - 1)))
    values: dict[str, Value] = {"n_categories": n, "n_positions": m, "qk": "factored", "dtype": "bfloat16"}
    with one_thread():
        is_held = {
            float32_state: np.concatenate(
                [
                    _is_held(
                        seeds,
                        values | {"init_sigma": s, "float32_state": float32_state, "n_steps": round(4 / (s * growth))},
                    )
                    for s in sigmas
                ]
            )
            for float32_state in (False, True)
        }
    return [
        _border_row(
            "3 factors, gradient descent in bfloat16: border in init_sigma",
            np.repeat(sigmas, len(seeds)),
            is_held[False].astype(np.float64),
            UNIT_ROUNDOFF["bfloat16"] / growth,
        ),
        share_row(
            "  at the zero with float32_state, over the same sigmas", int(is_held[True].sum()), is_held[True].size
        ),
    ]


def _is_held(seeds: range, values: dict[str, Value]) -> NDArray[np.bool_]:
    """Which of these trainings end within 1% of the zero level."""
    workload = CategoryPairs()
    parameters = defaults(workload, **values, learning_rate=LEARNING_RATE)
    pack = Pack(workload, [Training(parameters, seed) for seed in seeds])
    while not pack.advance(10_000):
        pass
    return np.asarray(pack.result().last("eval_loss") > 0.99)


def _border_row(name: str, sigma: NDArray[np.float64], is_zero: NDArray[np.float64], derived: float) -> ComparedValue:
    border, low, high = half_point(np.log(sigma), is_zero)
    agrees = abs(border - math.log(derived)) < math.log(_WITHIN)
    return border_row(name, border, low, high, published=f"{derived:.2g} (derived)", agrees=agrees)
