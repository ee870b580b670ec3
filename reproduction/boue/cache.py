"""Generation token by token, with the keys and values of earlier tokens kept. Axes: see `model`.

Layer norms, linear layers and feed-forward parts act on each token by itself, and attention is causal. So what a token
gave to later ones does not change when they come, and the logits equal those of the full pass.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from attnsweep.workloads.attention.block import TransformerBlock
from attnsweep.workloads.attention.sight import Sight
from attnsweep.workloads.gpt.model import GPT


@dataclass(frozen=True, slots=True)
class Kept:
    """What one block keeps of the tokens so far.

    Attributes:
        key_BHTC, value_BHTE: As `Attention.keys` and `Attention.values` give them.
    """

    key_BHTC: Tensor
    value_BHTE: Tensor


def next_logits(model: GPT, token_B: Tensor, kept: list[Kept]) -> Tensor:
    """(B, V) logits after one more token, of a causal model.

    Args:
        model: The model.
        token_B: The next token of each sequence.
        kept: What each block keeps of the tokens before, updated in place; empty before the first token.
    """
    assert model.shape.is_causal
    n_before = kept[0].key_BHTC.shape[2] if kept else 0
    x_B1D = model.embedded(token_B.unsqueeze(1), first=n_before)
    seen_B1K = torch.ones(1, 1, n_before + 1, dtype=torch.bool, device=token_B.device)
    sight = Sight.of(seen_B1K, x_B1D.dtype)
    for index, each in enumerate(model.blocks):
        block = cast(TransformerBlock, each)
        normal_B1D = block.attention_norm(x_B1D)
        own = Kept(block.attention.keys(normal_B1D), block.attention.values(normal_B1D))
        if n_before:
            kept[index] = Kept(
                torch.cat([kept[index].key_BHTC, own.key_BHTC], 2),
                torch.cat([kept[index].value_BHTE, own.value_BHTE], 2),
            )
        else:
            kept.append(own)
        given_B1D, _ = block.attention.attend(normal_B1D, kept[index].key_BHTC, kept[index].value_BHTE, sight)
        x_B1D = block.finished(x_B1D + given_B1D)
    return model.logits(x_B1D)[:, 0]
