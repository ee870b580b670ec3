"""Modular addition: its table, its levels and the frequencies of an embedding."""

import numpy as np
import pytest
import torch

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


def test_the_frequencies_are_those_of_a_discrete_fourier_transform() -> None:
    module = _adder()
    torch.nn.init.normal_(module.token.weight)
    power = (np.abs(np.fft.rfft(module.token.weight[:P].detach().numpy(), axis=0)[1:]) ** 2).sum(1)
    expected = np.sort(power)[-2:].sum() / power.sum()
    assert key_frequencies(module, P, n_key=2).item() == pytest.approx(expected, rel=1e-9)
