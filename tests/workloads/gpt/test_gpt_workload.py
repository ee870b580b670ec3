"""GPTs as a workload: conformance, outcomes, roles of heads, low-rank updates, and the block engine's bits.

Axes: L lane, N block, H head, P probe.
"""

import math

import numpy as np
import pytest
import torch

from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.gpt import GPTParameters, GPTWorkload
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import check_workload, defaults

WORKLOAD = GPTWorkload()

TINY: dict[str, Value] = {"n_steps": 6, "batch_size": 4, "eval_batch_size": 6, "d_model": 8}
MODES: dict[str, dict[str, Value]] = {
    "table": {"activation": "gelu", "d_ffn": 7, "qk_rank": 3},
    "induction": {
        "task": "induction",
        "n_words": 8,
        "n_tokens": 8,
        "n_blocks": 2,
        "n_heads": 2,
        "qk": "merged",
        "tied": True,
        "positions": "sinusoidal",
    },
    "chain": {
        "task": "order_2_chain",
        "n_words": 5,
        "chain_contrast": 3.0,
        "dtype": "float64",
        "optimizer": "sgd",
        "activation": "gelu_tanh",
        "positions": "none",
    },
}
LANES: list[dict[str, Value]] = [
    {},
    {"init_sigma": 0.3, "layer_norm_eps": 0.0, "attention_scale": "one", "learning_rate": 1e-2},
    {"init_sigma": 1e-2, "layer_norm_eps": 1e-1, "attention_scale": "log_n_inv_sqrt_d"},
]
INDUCTION: dict[str, Value] = {
    "task": "induction",
    "n_words": 16,
    "n_tokens": 16,
    "n_blocks": 2,
    "d_ffn": 32,
    "batch_size": 32,
    "eval_batch_size": 64,
    "learning_rate": 1e-2,
}


def train(*trainings: Training[GPTParameters]) -> PackResult:
    return Pack(WORKLOAD, trainings).train_to_end()


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_conformance(mode: str) -> None:
    settings = TINY | MODES[mode]
    check_workload(WORKLOAD, [defaults(WORKLOAD, **{**settings, **lane}) for lane in LANES])


def test_outcomes_by_level() -> None:
    levels = {"zero": math.log(16), "constant": 2.6, "current": 2.3, "context": 1.5, "solved": 0.1}
    losses = [math.log(16), 2.6, 2.3, 1.5, 0.09, 100.0, 2.0]
    loss = np.array([[5.0, *losses]])
    evidence = Evidence(
        steps=np.arange(8),
        metrics={"eval_loss": loss},
        levels={name: np.array([value]) for name, value in levels.items()},
    )
    found = judged(WORKLOAD, defaults(WORKLOAD, **INDUCTION), evidence)
    assert list(zip(found.outcome[0, 1:], found.detail[0, 1:], strict=True)) == [
        ("degenerate_zero", "zero"),
        ("degenerate_zero", "constant"),
        ("marginal", "current"),
        ("marginal", "context"),
        ("solved", ""),
        ("diverged", ""),
        ("plateau", ""),
    ]


def test_levels_are_losses_of_reference_predictors_on_the_evaluation_batch() -> None:
    lanes = Lanes([Training(defaults(WORKLOAD, eval_batch_size=50), seed) for seed in range(2)], torch.device("cpu"))
    batch = WORKLOAD.eval_batch(lanes)
    torch.testing.assert_close(batch["weight"].sum((1, 2)), torch.ones(2))
    targets = batch["target"][0][batch["weight"][0] > 0]
    table = lanes.streams.integers("task/table", (4, 4), 4)[0]
    shares = table.flatten().bincount(minlength=4) / 16
    expected = -shares[targets].log().mean()
    torch.testing.assert_close(batch["level/constant"][0], expected)


@pytest.mark.scale
@pytest.mark.slow
def test_induction_heads_emerge() -> None:
    result = train(*[Training(defaults(WORKLOAD, **INDUCTION, n_steps=400), seed) for seed in range(2)])
    assert (np.nanmax(result.evidence.metrics["accuracy"], 1) > 0.9).all()
    roles = {role for probe in result.heads[-2:] for role in probe.heads.role.flatten()}
    assert {"previous_token", "induction"} <= roles
