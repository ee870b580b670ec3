"""Dropout draws from each training's own stream, by step and call, and drops nothing at probes."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.engine_forms import DROPOUT, EngineForms, Site, with_masks, without_dropout
from attnsweep.workloads.engine.layout import under
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import training_settings
from tests.workloads.engine.any_module import AnyParameters, lanes_of
from tests.workloads.models.module_kinds import KINDS, Kind, KindWorkload

SETTINGS = [AnyParameters(n_steps=6, init_sigma=sigma, dtype="float32") for sigma in (None, 0.3, 0.1)]
DROPPING = ("nn.Dropout", "nn.MultiheadAttention", "nn.TransformerEncoderLayer", "nanoGPT")


def _trained(kind: Kind, trainings: Sequence[Training[AnyParameters]]) -> dict[str, NDArray[np.float64]]:
    return Pack(KindWorkload(kind), trainings).train_to_end().evidence.metrics


@pytest.mark.parametrize("name", DROPPING)
def test_a_mask_depends_on_seed_step_and_call_alone(name: str) -> None:
    trainings = lanes_of(*SETTINGS).trainings
    with training_settings():
        together = _trained(KINDS[name], trainings)
        torch.rand(3)
        reversed_ = _trained(KINDS[name], trainings[::-1])
        alone = _trained(KINDS[name], trainings[1:2])
    for metric, values in together.items():
        np.testing.assert_allclose(values, reversed_[metric][::-1], rtol=1e-6)
        np.testing.assert_allclose(values[1:2], alone[metric], rtol=1e-6)
    assert np.ptp(together["loss"] - together["eval_loss"]) > 1e-4


def test_probes_drop_nothing() -> None:
    dropping, training = KindWorkload(KINDS["nn.Dropout"]), lanes_of(*SETTINGS[1:2]).trainings
    still = KindWorkload(Kind(lambda: KINDS["nn.Dropout"].build().eval()))
    at_start = [Pack(each, training) for each in (dropping, still)]
    for pack in at_start:
        pack.advance(1)
    dropped, whole = (pack.result().evidence.metrics for pack in at_start)
    assert dropped["eval_loss"][0, 0] == whole["eval_loss"][0, 0]
    assert dropped["loss"][0, 0] != whole["loss"][0, 0]


def _masks(n_dropped: int, *shape: int) -> dict[str, Tensor]:
    lanes = lanes_of(AnyParameters())
    return {
        name: value[0] for name, value in under(DROPOUT, with_masks(lanes, [Site(shape, n_dropped)], 3, {})).items()
    }


def test_what_is_kept_is_scaled() -> None:
    masks = _masks(2**14, 50, 8)
    with EngineForms(masks, has_padding=False):
        found = functional.dropout(torch.ones(50, 8), 0.25, True)
    assert torch.equal(found, (masks["0"] / 0.75).float())
    assert 0.65 < (found > 0).double().mean() < 0.85
    with EngineForms(_masks(2**16, 50, 8), has_padding=False):
        assert not functional.dropout(torch.ones(50, 8), 1.0, True).any()
    with without_dropout():
        assert torch.equal(functional.dropout(torch.ones(50, 8), 0.25, True), torch.ones(50, 8))
