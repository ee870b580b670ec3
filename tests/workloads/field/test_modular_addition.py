"""Modular addition: its table, its levels and the frequencies of an embedding."""

import math

import numpy as np
import pytest
import torch

from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.field.modular_addition import Adder, ModularAddition, key_frequencies, sums

P = 11
SMALL = {"p": P, "d_model": 8, "n_heads": 2, "d_ffn": 32, "init_sigma": 0.3, "learning_rate": 0.03}


def _adder() -> Adder:
    module = ModularAddition().build(ModularAddition.parameters.resolve(SMALL))
    assert isinstance(module, Adder)
    return module.double()


def test_the_table_has_all_pairs_and_their_sums() -> None:
    tokens, target = sums(P)
    assert len({*map(tuple, tokens.tolist())}) == P * P
    assert (tokens[:, 2] == P).all()
    assert torch.equal((tokens[:, 0] + tokens[:, 1]) % P, target)
    # All sums are equally frequent: the zero predictor is the best constant one on the whole table.
    assert torch.equal(target.bincount(), torch.full((P,), P))


def test_an_embedding_of_few_waves_has_all_its_power_in_them() -> None:
    module = _adder()
    angle = 2 * torch.pi * torch.arange(P, dtype=torch.float64)[:, None] / P
    with torch.no_grad():
        module.token.weight[:P] = 7 + (angle * torch.tensor([1, 1, 3, 3])).cos().repeat(1, 2)
    assert key_frequencies(module, P, n_key=2).item() == pytest.approx(1, abs=1e-9)
    assert key_frequencies(module, P, n_key=1).item() == pytest.approx(0.5, abs=1e-9)


def test_the_frequencies_are_those_of_a_discrete_fourier_transform() -> None:
    module = _adder()
    torch.nn.init.normal_(module.token.weight)
    power = (np.abs(np.fft.rfft(module.token.weight[:P].detach().numpy(), axis=0)[1:]) ** 2).sum(1)
    expected = np.sort(power)[-2:].sum() / power.sum()
    assert key_frequencies(module, P, n_key=2).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_pairs_are_memorized_long_before_it_can_add() -> None:
    parameters = ModularAddition.parameters.resolve(SMALL | {"weight_decay": 0.0, "n_steps": 100})
    result = Pack(ModularAddition(), [Training(parameters, seed) for seed in range(2)]).train_to_end()
    assert result.evidence.levels["zero"] == pytest.approx([math.log(P)] * 2, rel=1e-5)
    outcome = result.at_last_probe(judged(ModularAddition(), parameters, result.evidence).outcome)
    assert outcome.tolist() == ["memorized"] * 2
