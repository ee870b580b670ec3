"""A probe computes nothing twice: neither the answers on its own batch nor what the optimizer has already computed."""

from collections import Counter
from typing import Any

import pytest
from torch import Tensor, nn

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.engine.contract import Batch, Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.formal_languages.encoder import Encoder
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

CALLS: Counter[str] = Counter()
FIXED_SAMPLE: dict[str, Value] = {
    "variant": "solution_3",
    "expectation": "fixed_sample",
    "n_positions": 6,
    "batch_size": 20,
}


class CountingModel(FullModel):
    """Counts the passes forward, and those from which the training's gradient is taken."""

    def predict(self, text_BM: Tensor) -> Tensor:
        CALLS["predict"] += 1
        return super().predict(text_BM)

    def mean_squared_error(self, text_BM: Tensor) -> Tensor:
        CALLS["mean_squared_error"] += 1
        return super().mean_squared_error(text_BM)


class CountingPairs(CategoryPairs):
    def build(self, parameters: Any) -> nn.Module:
        return CountingModel(parameters)


class CountingLanguages(FormalLanguages):
    def build(self, parameters: Any) -> Encoder:
        encoder = super().build(parameters)
        encoder.register_forward_pre_hook(lambda *_: CALLS.update(["forward"]))
        return encoder

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        CALLS["loss"] += 1
        return super().loss(module, batch)


def _trained(workload: Workload[Any], **values: Value) -> Pack[Any]:
    pack = Pack(workload, [Training(defaults(workload, **values), seed) for seed in range(3)])
    CALLS.clear()
    pack.train_to_end()
    return pack


def test_a_probe_takes_one_pass_and_the_gradient_of_lbfgs() -> None:
    settings = FIXED_SAMPLE | {"optimizer": "lbfgs", "learning_rate": 1.0, "n_steps": 5, "init_sigma": 0.3}
    pack = _trained(CountingPairs(), **settings)
    n_probes = len(pack.result().evidence.steps)
    n_evaluations = CALLS["mean_squared_error"]
    n_to_look_for_dropout = 1
    assert n_evaluations == pack._objective.n_evaluations + n_to_look_for_dropout
    n_parts_of_the_evaluation_batch = 6
    assert CALLS["predict"] == n_evaluations + n_parts_of_the_evaluation_batch * n_probes


@pytest.mark.slow
def test_a_probe_takes_one_pass_of_its_own_and_one_of_the_next_step() -> None:
    pack = _trained(CountingLanguages(), language="first", n_steps=4, train_length=5, longest_test_length=5)
    n_probes = len(pack.result().evidence.steps)
    n_to_look_for_dropout = 1
    assert CALLS["loss"] == 4 + n_probes + n_to_look_for_dropout
    assert CALLS["forward"] == CALLS["loss"] + n_probes
