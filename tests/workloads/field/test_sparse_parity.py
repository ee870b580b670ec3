"""Sparse parity: what its target has to do with its signs, and when a network learns it."""

import numpy as np
import pytest
import torch

import attnsweep as at
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.field.sparse_parity import SparseParity, signs


def test_the_target_is_the_product_of_the_first_k_signs() -> None:
    sign, target = signs(at.Draw(torch.tensor(3), "train", 0), n_bits=6, k=4, batch_size=5000)
    assert sign.abs().eq(1).all()
    assert torch.equal(sign[:, 0] * sign[:, 1] * sign[:, 2] * sign[:, 3], target)
    assert sign.mean(0).abs().max() < 0.06


@pytest.mark.slow
def test_it_is_learned_all_at_once() -> None:
    parameters = SparseParity.parameters.resolve({"n_bits": 8, "k": 2, "width": 50, "n_steps": 200})
    result = Pack(SparseParity(), [Training(parameters, seed) for seed in range(4)]).train_to_end()
    assert (result.evidence.levels["zero"] == 1).all()
    accuracy = result.evidence.metrics["accuracy"]
    assert accuracy[:, 0].max() < 0.75
    assert np.nanmax(accuracy, axis=1).min() >= 0.98
    share = result.evidence.metrics["weight_on_parity"]
    assert share[:, 0] == pytest.approx([2 / 8] * 4, abs=0.1)
    assert np.nanmax(share, axis=1).min() > 0.4
