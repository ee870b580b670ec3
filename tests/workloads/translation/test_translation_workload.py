"""Translation as a workload: conformance, the same to the last bit in any pack, and that it learns."""

import numpy as np
import pytest

from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import check_workload
from tests.workloads.translation.small_translation import WORKLOAD, small

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
    verdicts = WORKLOAD.judge(parameters, result.evidence)
    assert (verdicts.outcome[:, -1] == "plateau").all()


@pytest.mark.scale
@pytest.mark.slow
def test_without_weights_nothing_is_learned_of_the_source() -> None:
    """Zero embeddings: words differ only in their positions."""
    parameters = small(init_sigma=0.0, learning_rate=0.1, n_steps=120, head_sentences=0)
    result = _train(Training(parameters, 0), Training(parameters, 1))
    verdicts = WORKLOAD.judge(parameters, result.evidence)
    assert (verdicts.outcome[:, 0] == "degenerate_zero").all()
    assert (verdicts.detail[:, 0] == "unigram").all()
    assert (verdicts.outcome[:, -1] == "marginal").all()
    assert (verdicts.detail[:, -1] == "language_model").all()
    assert (result.evidence.metrics["source_gain"] == 0).all()
