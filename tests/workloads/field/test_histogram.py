"""Counting letters: the sequences, the level in closed form, and the block that mixes tokens."""

import pytest
import torch
from torch import Tensor

import attnsweep as at
from attnsweep.workloads.field.histogram import Mixing, model, same_letter, sequences


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
