"""Formal languages as a workload: conformance, refusals, outcomes, epochs, and what trains."""

import math

import numpy as np
import pytest
import torch

from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.formal_languages import FormalLanguages, FormalLanguagesParameters
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import check_workload, defaults
from tests.refusals import refused

WORKLOAD = FormalLanguages()

TINY: dict[str, Value] = {"n_steps": 12, "eval_batch_size": 20, "test_batch_size": 5, "d_model": 6, "d_ffn": 8}
MODES: list[dict[str, Value]] = [
    {"longest_test_length": 100, "dtype": "float64"},
    {"longest_test_length": 20, "n_heads": 2, "optimizer": "sgd", "batch_size": 3},
    {"language": "parity", "longest_test_length": 12, "n_layers": 1, "dtype": "float64", "fresh_test_strings": True},
]


def _train(*trainings: Training) -> PackResult:  # type: ignore[type-arg]
    return Pack(WORKLOAD, trainings).train_to_end()


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode["longest_test_length"]))
def test_conformance(mode: dict[str, Value]) -> None:
    lanes: list[dict[str, Value]] = [
        {"train_length": 5},
        {"init_sigma": 0.3, "layer_norm_eps": 0.0, "attention_scale": "log_n_inv_sqrt_d"},
        {"init_sigma": 1e-2, "layer_norm_eps": 1e-1, "attention_scale": "log_n_query_inv_sqrt_d"},
    ]
    if "language" not in mode:
        lanes[1] |= {"train_length": 40}
        lanes[2] |= {"train_length": 1}
    check_workload(WORKLOAD, [defaults(WORKLOAD, **{**TINY, "train_length": 5, **mode, **lane}) for lane in lanes])


def _tested(trainings: list[Training]) -> np.ndarray:  # type: ignore[type-arg]
    """(L, P) the cross-entropy at length 40, at each probe."""
    return _train(*trainings).evidence.metrics["cross_entropy_40"]


def _untrained(n: int, **values: Value) -> list[Training]:  # type: ignore[type-arg]
    """Encoders that hardly move, so that what changes from probe to probe is the strings."""
    still = {"learning_rate": 1e-30, "n_epochs": 3, "steps_per_epoch": 2, "longest_test_length": 40}
    settings: dict[str, Value] = {**TINY, "n_steps": 6, "test_ladder": False, **still, **values}
    return [Training(defaults(WORKLOAD, train_length=5 + seed, **settings), seed) for seed in range(n)]


@pytest.mark.slow
def test_each_probe_may_draw_new_test_strings() -> None:
    same, fresh = _tested(_untrained(3)), _tested(_untrained(3, fresh_test_strings=True))
    assert (same == same[:, :1]).all()
    assert (np.diff(fresh) != 0).all()
    # The strings of a probe belong to its step: of the first probe they are those that are kept otherwise.
    np.testing.assert_array_equal(fresh[:, 0], same[:, 0])
    denser = _tested(_untrained(3, fresh_test_strings=True, n_epochs=6, steps_per_epoch=1))
    np.testing.assert_array_equal(denser[:, ::2], fresh)


@pytest.mark.parametrize(
    ("values", "subject"),
    [
        ({"n_heads": 3}, "n_heads"),
        ({"language": "parity", "d_model": 1}, "d_model"),
        ({"language": "parity", "tokens": "kinds"}, "tokens"),
        ({"n_epochs": 3, "n_steps": 500}, "n_steps"),
        ({"steps_per_epoch": 50}, "steps_per_epoch"),
        ({"language": "dyck"}, "language"),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, Value], subject: str) -> None:
    with refused(subject, SpecError):
        defaults(WORKLOAD, **values)


def test_reference_levels_are_those_of_the_evaluation_strings() -> None:
    lanes = Lanes([Training(defaults(WORKLOAD, train_length=2, dtype="float64"), 0)], torch.device("cpu"))
    batch = {name: value[0] for name, value in WORKLOAD.eval_batch(lanes).items()}
    levels = WORKLOAD.levels(torch.nn.Identity(), batch)
    share = (batch["sign"] > 0).double().mean().item()
    assert levels["constant"].item() == pytest.approx(-share * math.log2(share) - (1 - share) * math.log2(1 - share))
    # Of 00, 01, 10, 11 a count of 1s leaves 01 and 10 alike: half a bit.
    assert levels["count"].item() == pytest.approx(0.5, abs=0.05)
    assert levels["zero"].item() == 1.0
    parity = Lanes([Training(defaults(WORKLOAD, language="parity"), 0)], torch.device("cpu"))
    assert "count" not in WORKLOAD.levels(torch.nn.Identity(), WORKLOAD.eval_batch(parity))


def _evidence(bits: list[float], accuracy: float = 0.6, logit_std: float = 1.0, **levels: float) -> Evidence:
    """The evidence of one training with these losses."""
    metrics = {"eval_loss": np.array([bits])}
    metrics |= {
        name: np.full((1, len(bits)), value) for name, value in (("accuracy", accuracy), ("logit_std", logit_std))
    }
    named = {"zero": 1.0, "constant": 0.99, "solved": 0.05} | levels
    return Evidence(
        steps=np.arange(len(bits)) * 10,
        metrics=metrics,
        levels={name: np.array([value]) for name, value in named.items()},
    )


@pytest.mark.parametrize(
    ("evidence", "wanted"),
    [
        (_evidence([1.0, 3.1], logit_std=0.0), ("diverged", "")),
        (_evidence([1.0, math.nan]), ("diverged", "")),
        (_evidence([1.0, 0.04], accuracy=1.0), ("solved", "")),
        (_evidence([1.0, 0.04], accuracy=0.999), ("plateau", "moving")),
        (_evidence([1.0, 0.06], accuracy=1.0), ("plateau", "moving")),
        (_evidence([1.0, 0.99], logit_std=1e-3), ("degenerate_zero", "constant")),
        (_evidence([1.0, 1.3], logit_std=1e-3), ("degenerate_zero", "constant")),
        (_evidence([1.0, 0.985]), ("marginal", "constant")),
        (_evidence([1.0, 0.92], count=0.92), ("marginal", "count")),
        (_evidence([1.0, 0.92]), ("plateau", "moving")),
        (_evidence([0.9, 0.9]), ("plateau", "")),
    ],
)
def test_the_order_of_the_definitions(evidence: Evidence, wanted: tuple[str, str]) -> None:
    verdicts = judged(WORKLOAD, FormalLanguagesParameters(), evidence)
    assert (verdicts.outcome[0, -1], verdicts.detail[0, -1]) == wanted


SHORT: dict[str, Value] = {
    "train_length": 3,
    "learning_rate": 3e-3,
    "batch_size": 8,
    "n_steps": 800,
    "eval_batch_size": 200,
    "longest_test_length": 30,
}


@pytest.mark.slow
def test_first_is_learned_and_its_head_is_found() -> None:
    trainings = [Training(defaults(WORKLOAD, **SHORT, attention_scale="log_n_inv_sqrt_d"), seed) for seed in range(4)]
    result = _train(*trainings)
    verdicts = judged(WORKLOAD, trainings[0].parameters, result.evidence)
    assert (verdicts.outcome[np.arange(4), result.last_probe] == "solved").sum() >= 3
    assert (result.last("accuracy_10") > 0.9).sum() >= 3
    heads = result.heads[-1].heads
    assert set(heads.scores) == set(WORKLOAD.head_score_names)
    assert heads.role.shape[1:] == (2, 1)
    assert np.isfinite(result.last("first_attention_30")).all()
