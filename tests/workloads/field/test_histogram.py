"""Counting letters: the sequences, the level in closed form, and the block that mixes tokens."""

import math
from functools import lru_cache

import pytest
import torch
from torch import Tensor

import attnsweep as at
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.field.histogram import HISTOGRAM, Mixing, model, same_letter, sequences


@lru_cache
def _groups(n: int, size: int) -> float:
    """The expected number of groups of this size in n tokens: the first is uniform on 1 to n - 1 tokens long."""
    if n <= 1:
        return float(n == size)
    return (float(size < n) + sum(_groups(n - first, size) for first in range(1, n))) / (n - 1)


def _drawn(n_letters: int, n_tokens: int, mixing: Mixing, n: int) -> tuple[Tensor, Tensor]:
    return sequences(at.Draw(torch.tensor(5), "train", 0), n_letters, n_tokens, mixing, n)


def test_the_targets_are_the_counts() -> None:
    letter_BT, count_BT = _drawn(7, 5, "dot", 200)
    for letters, counts in zip(letter_BT.tolist(), count_BT.tolist(), strict=True):
        assert counts == [letters.count(letter) for letter in letters]
    begun_BT, same_BT = _drawn(7, 5, "bos", 200)
    assert torch.equal(begun_BT[:, 1:], letter_BT)
    assert torch.equal(same_BT, count_BT)
    assert (begun_BT[:, 0] == 7).all()


def test_the_level_of_who_guesses_is_the_entropy_of_the_counts() -> None:
    parameters = HISTOGRAM.parameters.resolve({"n_letters": 8, "n_tokens": 6})
    lanes, problem = Lanes([Training(parameters, seed) for seed in range(8)], torch.device("cpu")), HISTOGRAM()
    batch = problem.eval_batch(lanes)
    shares = [size * _groups(6, size) / 6 for size in range(1, 6)]
    exact = -sum(share * math.log(share) for share in shares)
    sampled = []
    for lane in range(8):
        module = problem.build(parameters)
        sampled.append(float(problem.levels(module, {name: value[lane] for name, value in batch.items()})["unigram"]))
    assert sum(sampled) / 8 == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("mixing", ["bos", "dot", "lin"])
@pytest.mark.parametrize("softmax", [False, True])
def test_the_block_is_that_of_its_formula(mixing: Mixing, softmax: bool) -> None:
    built = model(5, 4, mixing, softmax, 3, 6, 2.0, "none", 1e-5).double()
    generator = torch.Generator().manual_seed(0)
    for value in built.parameters():
        value.data = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        value.requires_grad_(False)
    letter_BT, count_BT = _drawn(5, 4, mixing, 2)
    values = dict(built.named_parameters())
    x = values["token.weight"][letter_BT]
    if mixing == "lin":
        logits = (2.0 * values["places.weight"]).expand(2, -1, -1)
    else:
        logits = (x @ values["query.weight"].T) @ (x @ values["key.weight"].T).mT * 2.0 / 3**0.5
    weights = logits.softmax(-1) if softmax else logits
    hidden = torch.relu((x + weights @ x) @ values["hidden.weight"].T + values["hidden.bias"])
    answers = (hidden @ values["head.weight"].T + values["head.bias"])[:, letter_BT.shape[1] - count_BT.shape[1] :]
    assert torch.allclose(built(letter_BT), answers)
    assert torch.allclose(built.attention(letter_BT)[0, :, 0], weights)
    size = weights.abs()
    same = size * (letter_BT.unsqueeze(-1) == letter_BT.unsqueeze(1))
    assert same_letter(weights[None, :, None], letter_BT) == pytest.approx(float((same.sum(-1) / size.sum(-1)).mean()))
