"""Attention masks, compared with loops over sentences, queries and keys. Axes: B sentence, Q query, K key."""

import itertools

import pytest
import torch
from torch import Tensor

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.translation.corpus import EOS, PAD, SOS
from attnsweep.workloads.translation.model import Structure, sights
from tests.workloads.translation.small_translation import small

LONGEST = 12


def _batch() -> Batch:
    """Sentences of all lengths, with ties in rarity."""
    generator = torch.Generator().manual_seed(3)
    B, S, T = 9, 10, 8
    source = torch.randint(4, 9, (B, S), generator=generator)
    read = torch.randint(4, 9, (B, T), generator=generator)
    read[:, 0] = SOS
    for b in range(B):
        n = b + 1
        source[b, n - 1], source[b, n:] = EOS, PAD
        read[b, max(1, n - 1) :] = PAD
    rarity = torch.tensor([-1, -1, -1, 9, 0, 1, 1, 3, 0])
    return {"source": source, "read": read, "source_rarity": rarity[source], "read_rarity": rarity[read]}


def _columns(rarity: list[int], num_pos: int, global_columns: str) -> list[int]:
    """The rarest of the given tokens."""
    places = range(len(rarity))
    if global_columns == "first":
        return list(places)[:num_pos]
    return sorted(places, key=lambda place: (-rarity[place], place))[:num_pos]


def _expected(batch: Batch, window: int | None, num_pos: int, global_columns: str, *, is_decoder: bool) -> Tensor:
    names = ("read", "read_rarity") if is_decoder else ("source", "source_rarity")
    tokens, rarity = (batch[name].tolist() for name in names)
    B, n = len(tokens), len(tokens[0])
    seen = torch.zeros(B, n, n, dtype=torch.bool)
    for b, i, j in itertools.product(range(B), range(n), range(n)):
        so_far = i + 1 if is_decoder else n
        in_band = window is None or abs(i - j) <= window
        is_column = j in _columns(rarity[b][:so_far], num_pos, global_columns)
        is_word = tokens[b][j] != PAD and j < so_far
        seen[b, i, j] = i == j or (is_word and (in_band or is_column))
    return seen


@pytest.mark.parametrize("window", [None, 0, 1, 3, 100])
@pytest.mark.parametrize("num_pos", [0, 1, 2, 5, 100])
@pytest.mark.parametrize("global_columns", ["first", "rarest"])
def test_the_band_and_the_columns(window: int | None, num_pos: int, global_columns: str) -> None:
    values: dict[str, Value] = {"window": window, "num_pos": num_pos, "global_columns": global_columns}
    batch = _batch()
    found = sights(Structure(small(**values), LONGEST), batch, torch.float64)
    for layer, is_decoder in (("encoder_self", False), ("decoder_self", True)):
        expected = _expected(batch, window, num_pos, global_columns, is_decoder=is_decoder)
        assert torch.equal(
            found[layer].bias_BQK, torch.zeros(expected.shape).double().masked_fill(~expected, -torch.inf)
        )
        torch.testing.assert_close(found[layer].log_n_BQ.exp(), expected.sum(-1).double())
    is_word_BK = batch["source"] != PAD
    cross = found["cross"]
    assert cross.bias_BQK.shape == (9, 8, 10)
    assert torch.equal(cross.bias_BQK == 0, is_word_BK.unsqueeze(1).expand(-1, 8, -1))
    torch.testing.assert_close(cross.log_n_BQ, is_word_BK.sum(1).double().log().unsqueeze(1).expand(-1, 8))
