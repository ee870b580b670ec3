"""The reduced systems as a workload: conformance, and the outcomes of docs/outcomes.md on trainings with known ends."""

import numpy as np
import pytest

from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import check_workload, defaults

WORKLOAD = CategoryPairs()

SMALL = {"n_categories": 4, "n_positions": 5, "n_steps": 40, "batch_size": 8}
MODES = [
    {"variant": "positions_only"},
    {"variant": "positions_only", "attention_activation": "softmax"},
    {"variant": "positions_only", "expectation": "sampled"},
    {"variant": "positions_only", "expectation": "sampled", "attention_activation": "softmax"},
    {"variant": "categories_only"},
    {"variant": "categories_only", "expectation": "sampled"},
    {"variant": "categories_only", "expectation": "sampled", "attention_activation": "softmax"},
    {"variant": "positions_only", "dtype": "float32", "optimizer": "adam"},
]


@pytest.mark.sample("categories_only-sampled")
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "-".join(mode.values()))
def test_conformance(mode: dict[str, str]) -> None:
    lanes: list[dict[str, Value]] = [
        {"init_sigma": 0.1},
        {"init_sigma": 1e-3, "learning_rate": 0.05},
        {"init_sigma": None},
    ]
    few = {**SMALL, "n_steps": 16}
    check_workload(WORKLOAD, [defaults(WORKLOAD, **few, **mode, **lane) for lane in lanes])


@pytest.mark.slow
def test_levels_are_taken_where_the_loss_is_estimated() -> None:
    parameters = defaults(
        WORKLOAD,
        variant="categories_only",
        attention_activation="softmax",
        expectation="sampled",
        n_categories=3,
        n_positions=4,
        init_sigma=0.0,
        learning_rate=1e-9,
        n_steps=2,
    )
    pack = Pack(WORKLOAD, [Training(parameters, seed) for seed in range(96)])
    pack.advance(10)
    result = pack.result()
    np.testing.assert_allclose(result.evidence.metrics["eval_loss"][:, 0], result.evidence.levels["zero"], rtol=1e-12)
    verdicts = judged(WORKLOAD, parameters, result.evidence)
    assert (verdicts.outcome[:, -1] == "degenerate_zero").all()


def _evidence(levels: list[float], alpha: float = 1.0, beta: float = 1.0, gamma: float = 1.0) -> Evidence:
    """The evidence of one training of system P at N = 10, M = 20 with these levels."""
    level = np.array([levels])
    full = np.ones_like(level)
    references = {"zero": 1.0, "mean": 0.9, "centred_shift": 0.145, "valley": 0.045, "solved": 0.00225}
    return Evidence(
        steps=np.arange(level.size) * 100,
        metrics={
            "eval_loss": level,
            "grad_norm": gamma * level,
            "param_norm": full,
            "alpha": alpha * full,
            "beta": beta * full,
        },
        levels={name: np.array([value]) for name, value in references.items()},
    )


@pytest.mark.parametrize(
    ("evidence", "wanted"),
    [
        (_evidence([1.0, 3.1]), ("diverged", "")),
        (_evidence([50.0, 3.1]), ("plateau", "moving")),
        (_evidence([1.0, np.nan]), ("diverged", "")),
        (_evidence([1.0, 0.0022]), ("solved", "")),
        (_evidence([1.0, 0.05], beta=-1.0), ("runaway", "valley")),
        (_evidence([1.0, 0.044], beta=-1.0), ("plateau", "moving")),
        (_evidence([1.0, 0.101], beta=-1.0), ("plateau", "moving")),
        (_evidence([1.0, 0.995], gamma=1e-3), ("degenerate_zero", "zero")),
        (_evidence([1.0, 0.995], gamma=1e-1), ("plateau", "")),
        (_evidence([1.0, 0.895]), ("marginal", "mean")),
        (_evidence([1.0, 0.1455]), ("marginal", "centred_shift")),
        (_evidence([1.0, 0.5, 0.5, 0.5, 0.5, 0.498]), ("plateau", "")),
    ],
)
def test_the_order_of_the_definitions(evidence: Evidence, wanted: tuple[str, str]) -> None:
    verdicts = judged(WORKLOAD, CategoryPairsParameters(), evidence)
    assert (verdicts.outcome[0, -1], verdicts.detail[0, -1]) == wanted
