"""No shipped workload mixes devices: when built, in steps, at probes, at the end, from a checkpoint.

Collected by `test_devices`, in a process of its own.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.category_pairs import CategoryPairs, certificates
from attnsweep.workloads.diagnostics import kicks
from attnsweep.workloads.diagnostics.kicks import kick_and_train
from attnsweep.workloads.engine.contract import Batch, Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.field.abrupt_learning import ABRUPT_LEARNING
from attnsweep.workloads.field.histogram import HISTOGRAM
from attnsweep.workloads.field.sequence_tasks import SEQUENCE_TASKS
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation
from tests.workloads.pretend_device import pretend_device
from tests.workloads.translation.small_translation import SMALL as TRANSLATION

PAIRS: dict[str, Value] = {"n_categories": 3, "n_positions": 4, "batch_size": 6, "n_steps": 4}
FULL: dict[str, Value] = PAIRS | {"expectation": "fixed_sample", "optimizer": "lbfgs"}
LANGUAGE: dict[str, Value] = {
    "n_steps": 4,
    "train_length": 5,
    "longest_test_length": 8,
    "eval_batch_size": 6,
    "test_batch_size": 4,
    "d_model": 6,
    "d_ffn": 8,
}
TRANSLATOR: dict[str, Value] = TRANSLATION | {
    "n_steps": 3,
    "n_probes": 2,
    "eval_sentences": 4,
    "head_sentences": 2,
    "test_sentences": 2,
}
TABLE: dict[str, Value] = {"n_steps": 4, "batch_size": 3, "eval_batch_size": 4, "d_model": 6, "d_ffn": 8}
INDUCTION: dict[str, Value] = TABLE | {"task": "induction", "n_words": 8, "n_tokens": 8, "n_blocks": 2}
FIELD: dict[str, Value] = {"n_steps": 4, "batch_size": 4}
GIVEN, DRAWN = {"init_sigma": 0.3}, {"init_sigma": None}
CASES: list[tuple[Workload[Any], dict[str, Value]]] = [
    *(
        (CategoryPairs(), PAIRS | {"variant": variant, "attention_activation": activation, "expectation": expectation})
        for variant in ("positions_only", "categories_only")
        for activation in ("identity", "softmax")
        for expectation in ("population", "sampled")
        if (variant, activation, expectation) != ("categories_only", "softmax", "population")
    ),
    *((CategoryPairs(), PAIRS | {"optimizer": name}) for name in ("adam", "adamw", "lbfgs")),
    (CategoryPairs(), FULL | {"variant": "combined", "flavour": "lean_1"}),
    (CategoryPairs(), FULL | {"variant": "solution_3", "expectation": "sampled", "optimizer": "adam"}),
    (FormalLanguages(), LANGUAGE | {"language": "first"}),
    (FormalLanguages(), LANGUAGE | {"language": "parity", "n_heads": 2, "attention_scale": "log_n_inv_sqrt_d"}),
    (FormalLanguages(), LANGUAGE | {"language": "first", "layer_norm": False, "tokens": "positions"}),
    (GPTWorkload(), TABLE | {"activation": "gelu", "tied": True}),
    (GPTWorkload(), TABLE | {"task": "order_2_chain", "chain_contrast": 3.0, "positions": "sinusoidal"}),
    (GPTWorkload(), INDUCTION | {"qk": "merged"}),
    (ABRUPT_LEARNING(), FIELD | {"length": 3, "n_numbers": 3, "d_model": 6}),
    *((HISTOGRAM(), FIELD | {"mixing": mixing}) for mixing in ("bos", "lin")),
    *(
        (SEQUENCE_TASKS(), FIELD | {"d_model": 6, "length": 3, "task": task})
        for task in ("majority", "brackets", "sort", "recall")
    ),
    (Translation(), TRANSLATOR),
    (Translation(), TRANSLATOR | {"window": 1, "num_pos": 2, "attention_scale": "log_n_inv_sqrt_d"}),
]


def _case(workload: Workload[Any], values: dict[str, Value]) -> str:
    telling = {name: value for name, value in values.items() if name not in PAIRS | LANGUAGE | TRANSLATION}
    return " ".join([workload.name, *map(str, telling.values())])


def _ended(workload: Workload[Any], trainings: list[Training[Any]], device: str) -> Pack[Any]:
    """A pack that was interrupted, resumed and trained to its end, texts included."""
    begun = Pack(workload, trainings, device)
    begun.advance(2)
    pack = Pack.resumed(workload, trainings, begun.checkpoint(), device)
    pack.train_to_end()
    workload.final_metrics(*pack.final_state(np.arange(len(trainings))))
    return pack


@pytest.fixture(scope="module")
def device() -> str:
    return "cuda" if torch.cuda.is_available() else pretend_device()


@pytest.mark.sample(
    "category_pairs sampled adam solution_3",
    "formal_languages parity log_n_inv_sqrt_d",
    "translation 1 2 log_n_inv_sqrt_d",
)
@pytest.mark.parametrize(("workload", "values"), CASES, ids=[_case(*case) for case in CASES])
def test_no_workload_mixes_devices(workload: Workload[Any], values: dict[str, Value], device: str) -> None:
    parameters = [defaults(workload, **values | start) for start in (GIVEN, DRAWN)]
    trainings = [Training(parameters[seed % 2], seed) for seed in range(3)]
    found = _ended(workload, trainings, device).result().evidence
    if device == pretend_device():
        expected = _ended(workload, trainings, "cpu").result().evidence
        for name in ("loss", "eval_loss"):
            np.testing.assert_allclose(found.metrics[name], expected.metrics[name], rtol=1e-5, err_msg=name)


@pytest.mark.sample("negative_curvature", "valley_reset")
@pytest.mark.parametrize(
    ("values", "outcome", "test"),
    [
        pytest.param(PAIRS, "degenerate_zero", "negative_curvature", id="negative_curvature"),
        pytest.param(PAIRS, "runaway", "valley_reset", id="valley_reset"),
        pytest.param(FULL | {"variant": "solution_1"}, "degenerate_zero", "kick", id="kick"),
        pytest.param(
            FULL | {"variant": "solution_1", "dtype": "float32"}, "degenerate_zero", "promotion", id="promotion"
        ),
    ],
)
def test_no_certificate_mixes_devices(
    values: dict[str, Value], outcome: str, test: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "RESET_STEPS", 3)
    monkeypatch.setattr(certificates, "_SMALL_SHARE", 1.0)
    monkeypatch.setattr(certificates, "kick_and_train", partial(kick_and_train, n_steps=3))
    monkeypatch.setattr(kicks, "KICKS", kicks.KICKS[:1])
    monkeypatch.setattr(kicks, "_ROUNDS", 1)
    workload = CategoryPairs()
    trainings = [Training(defaults(workload, **values), seed) for seed in range(2)]
    ended = _ended(workload, trainings, device).final_state(np.arange(2))
    found = workload.certify(*ended, np.full(2, outcome), np.full(2, ""))
    assert [each.test for each in found if each] == [test, test]


class OnTwo(CategoryPairs):
    """Adds a tensor of the CPU to the loss."""

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return (super().loss(module, batch) + torch.zeros(2)).sum()


def test_a_mixture_is_found(device: str) -> None:
    trainings = [Training(defaults(CategoryPairs(), **PAIRS), seed) for seed in range(2)]
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but found at least two"):
        Pack(OnTwo(), trainings, device).advance(1)
