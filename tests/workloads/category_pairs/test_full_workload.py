"""The full models as a workload: conformance, refusals, and outcomes by the rules of docs/outcomes.md."""

import numpy as np
import pytest

from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import check_workload, defaults
from tests.refusals import refused

WORKLOAD = CategoryPairs()

TINY: dict[str, Value] = {
    "n_categories": 3,
    "n_positions": 4,
    "batch_size": 16,
    "n_steps": 4,
    "expectation": "fixed_sample",
}
MODES: list[dict[str, Value]] = [
    {"variant": "solution_1"},
    {"variant": "solution_2", "skip": False, "attention_activation": "softmax"},
    {"variant": "solution_3", "expectation": "sampled", "dtype": "float32", "optimizer": "adam"},
    {"variant": "combined", "hidden_width": 5},
]


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode["variant"])
def test_conformance(mode: dict[str, Value]) -> None:
    lanes: list[dict[str, Value]] = [
        {"init_sigma": 0.3, "layer_norm_eps": 1e-1},
        {"init_sigma": 1e-2, "attention_scale": "learned"},
        {"init_sigma": None, "attention_scale": "log_n_inv_sqrt_d"},
    ]
    if mode["variant"] == "combined":
        lanes[0] |= {"flavour": "lean_1"}
        lanes[1] |= {"flavour": "lean_2", "flavour_weight": 1.0}
    check_workload(WORKLOAD, [defaults(WORKLOAD, **{**TINY, **mode, **lane}) for lane in lanes])


@pytest.mark.parametrize(
    ("values", "subject"),
    [
        ({"variant": "solution_1"}, "expectation"),
        ({"expectation": "fixed_sample"}, "expectation"),
        ({"variant": "solution_1", "expectation": "sampled", "optimizer": "lbfgs"}, "expectation"),
        ({"skip": False}, "skip"),
        ({"variant": "solution_3", "expectation": "sampled", "flavour": "lean_3"}, "flavour"),
    ],
)
def test_combinations_without_meaning_are_refused(values: dict[str, Value], subject: str) -> None:
    with refused(subject, SpecError):
        defaults(WORKLOAD, **values)


def _evidence(test: list[float], **metrics: float) -> Evidence:
    """The evidence of one training with Var Y = 1 and these losses; by default far from every reference, and moving."""
    measured = {
        "loss": 1.0,
        "train_mse": test[-1],
        "train_grad_norm": 1.0,
        "param_norm": 1.0,
        "ablation": 1.0,
        "attention_product": 1.0,
        "match_mean": 1.0,
        "match_cur": 1.0,
        "match_prev": 1.0,
        "match_additive": 1.0,
    } | metrics
    table = {name: np.full((1, len(test)), value) for name, value in measured.items()}
    levels = {"zero": 1.1, "mean": 1.0, "solved": 0.01}
    return Evidence(
        steps=np.arange(len(test)) * 10,
        metrics=table | {"eval_loss": np.array([test])},
        levels={name: np.array([value]) for name, value in levels.items()},
    )


@pytest.mark.parametrize(
    ("evidence", "wanted"),
    [
        (_evidence([1.0, 3.4]), ("diverged", "")),
        (_evidence([1.0, np.nan]), ("diverged", "")),
        (_evidence([1.0, 0.009]), ("solved", "")),
        (_evidence([1.0, 0.5], train_mse=0.2), ("overfit", "")),
        (_evidence([1.0, 0.5], train_mse=0.26), ("plateau", "moving")),
        (_evidence([1.0, 0.045], train_mse=0.01), ("plateau", "moving")),
        (_evidence([1.0, 1.7], train_mse=0.71, match_cur=0.02), ("marginal", "cur")),
        (_evidence([0.9, 0.9], train_grad_norm=1e-3, ablation=1e-4, match_cur=0.2), ("degenerate_zero", "cur")),
        (
            _evidence([0.9, 0.9], train_grad_norm=1e-3, attention_product=0.05, match_mean=0.2),
            ("degenerate_zero", "mean"),
        ),
        (_evidence([0.9, 0.9], train_grad_norm=1e-1, ablation=1e-4, match_cur=0.02), ("marginal", "cur")),
        (_evidence([0.9, 0.9], train_grad_norm=1e-3, match_additive=0.02), ("marginal", "additive")),
        (_evidence([1.0, 0.5]), ("plateau", "moving")),
        (_evidence([0.5, 0.5]), ("plateau", "")),
    ],
)
def test_the_order_of_the_definitions(evidence: Evidence, wanted: tuple[str, str]) -> None:
    parameters = CategoryPairsParameters(variant="solution_3", expectation="fixed_sample")
    verdicts = judged(WORKLOAD, parameters, evidence)
    assert (verdicts.outcome[0, -1], verdicts.detail[0, -1]) == wanted
