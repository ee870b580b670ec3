"""Translation as a workload: conformance, the start, the same to the last bit in any pack, and that it learns."""

import math

import numpy as np
import pytest
import torch

from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.initialization import draw_parameters
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import check_workload
from tests.workloads.translation.small_translation import WORKLOAD, lanes, small

VARIANTS: list[dict[str, Value]] = [
    {},
    {"window": 2, "num_pos": 1},
    {"attention_scale": "log_n_inv_sqrt_d", "init_sigma": 0.1},
    {"window": 0, "label_smoothing": 0.0, "layer_norm_eps": 1e-2},
    {"window": 1, "num_pos": 2, "global_columns": "first", "attention_scale": "one"},
    {"learning_rate": 1e-2},
    {"window": 0, "num_pos": 3, "attention_scale": "log_n_inv_sqrt_d"},
]
SHAPES: list[dict[str, Value]] = [
    {},
    {"layer_norm_convention": "outside_root", "n_heads": 1, "d_model": 10},
    {"train_on": "short", "n_heads": 4, "d_model": 16, "batch_size": 5, "dropout": 0.3},
]


def _train(*trainings: Training) -> PackResult:  # type: ignore[type-arg]
    return Pack(WORKLOAD, trainings).train_to_end()


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_conformance(shape: dict[str, Value]) -> None:
    sizes: dict[str, Value] = {"n_steps": 4, "head_sentences": 0, "eval_sentences": 12}
    check_workload(WORKLOAD, [small(**(shape | sizes | variant)) for variant in VARIANTS[1:4]])


@pytest.mark.sample("{}")
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_training_is_the_same_to_the_last_bit_in_any_pack(shape: dict[str, Value]) -> None:
    sizes: dict[str, Value] = {"n_steps": 12, "eval_sentences": 24, "head_sentences": 12}
    trainings = [Training(small(**(shape | sizes | variant)), seed) for seed, variant in enumerate(VARIANTS)]
    whole = _train(*trainings)
    assert trainings[0].parameters.dtype == "float32"
    for some in (slice(0, 1), slice(6, 7), slice(2, 5)):
        part = _train(*trainings[some])
        for metric, table in part.evidence.metrics.items():
            np.testing.assert_array_equal(table, whole.evidence.metrics[metric][some], err_msg=metric)
        for name, level in part.evidence.levels.items():
            np.testing.assert_array_equal(level, whole.evidence.levels[name][some], err_msg=name)
        for probe, of_whole in zip(part.heads, whole.heads, strict=True):
            for name, score in probe.heads.scores.items():
                np.testing.assert_array_equal(score, of_whole.heads.scores[name][some], err_msg=name)


@pytest.mark.scale
@pytest.mark.slow
def test_it_learns_and_uses_the_source() -> None:
    values: dict[str, Value] = {"d_model": 16, "d_ffn": 32, "learning_rate": 1e-2, "batch_size": 16, "n_steps": 150}
    parameters = small(**values, head_sentences=0)
    result = _train(Training(parameters, 0), Training(parameters, 1))
    levels = result.evidence.levels
    assert (result.last("eval_loss") < levels["bigram"]).all()
    assert (result.last("source_gain") > 0.1).all()
    assert (result.last("token_accuracy") > 0.4).all()
    assert (result.evidence.metrics["source_gain"][:, 0] < 0.1).all()
    verdicts = judged(WORKLOAD, parameters, result.evidence)
    assert (verdicts.outcome[:, -1] == "plateau").all()


def test_xavier_is_uniform_within_its_bound_and_gaussian_where_asked() -> None:
    parameters = small(d_model=32, d_ffn=64), small(d_model=32, d_ffn=64, init_sigma=0.3), small(d_model=32, d_ffn=64)
    some = lanes(*parameters)
    module = WORKLOAD.build(parameters[0])
    found = WORKLOAD.initial(module, some)
    gaussian = draw_parameters(module, torch.full((3,), 0.3, dtype=torch.float64), some.streams)
    for name, built in module.named_parameters():
        value = found[name]
        assert value.dtype == built.dtype
        if built.dim() == 1:
            assert torch.equal(value, built.expand(3, -1)), name
            continue
        bound = math.sqrt(6 / sum(built.shape))
        assert torch.equal(value[1], gaussian[name][1]), name
        xavier = value[[0, 2]]
        assert 0.98 * bound < xavier.abs().max() <= bound, name
        # The variance of the law is 2 / (rows + columns).
        assert abs(xavier.var() * sum(built.shape) / 2 - 1) < 0.1, name
        assert not torch.equal(value[0], value[2]), name
