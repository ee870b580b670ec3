"""The models and the batch on which formulas are compared, in float64, and generation with a cache.

Layer norms, linear layers and feed-forward parts act on each token alone, and attention is causal. So the keys and
values of a token do not change when later tokens come, and the logits equal those of the full pass.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from attnsweep.workloads.attention.attention import Sight, TransformerBlock
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.gpt.model import GPT, GPTShape


def random_model(shape: GPTShape, layer_norm_eps: float = 1e-5) -> GPT:
    """Builds a float64 model in which all parameters are random, the gains and biases of LayerNorm too."""
    model = GPT(shape, layer_norm_eps=layer_norm_eps, lora_scale=1.7).double()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in model.parameters():
            noise = torch.randn(value.shape, generator=draw, dtype=torch.float64)
            value.copy_(noise / math.sqrt(value.shape[-1]) if value.dim() > 1 else value + 0.3 * noise)
    return model


def random_batch(n_words: int, n_tokens: int = 7) -> Batch:
    """Returns a batch of one sequence with random tokens, targets and weights."""
    draw = torch.Generator().manual_seed(2)
    token, target = (torch.randint(n_words, (1, n_tokens), generator=draw) for _ in range(2))
    return {"token": token, "target": target, "weight": torch.rand(1, n_tokens, generator=draw, dtype=torch.float64)}


@dataclass(frozen=True, slots=True)
class Kept:
    """The key-value cache of one block: the keys and values of all tokens so far.

    Attributes:
        key_BHTC, value_BHTE: The outputs of `Attention.keys` and `Attention.values`.
    """

    key_BHTC: Tensor
    value_BHTE: Tensor


def next_logits(model: GPT, token_B: Tensor, kept: list[Kept]) -> Tensor:
    """Computes the logits (B, V) of a causal model for one more token, and extends the key-value cache.

    Args:
        model: The model.
        token_B: The next token of each sequence.
        kept: The cache of each block, updated in place; empty before the first token.
    """
    assert model.shape.is_causal
    n_before = kept[0].key_BHTC.shape[2] if kept else 0
    x_B1D = model.embedded(token_B.unsqueeze(1), first=n_before)
    seen_B1K = torch.ones(1, 1, n_before + 1, dtype=torch.bool, device=token_B.device)
    sight = Sight.of(seen_B1K, x_B1D.dtype)
    for index, module in enumerate(model.blocks):
        block = cast(TransformerBlock, module)
        normal_B1D = block.attention_norm(x_B1D)
        new = Kept(block.attention.keys(normal_B1D), block.attention.values(normal_B1D))
        if n_before:
            kept[index] = Kept(
                torch.cat([kept[index].key_BHTC, new.key_BHTC], 2),
                torch.cat([kept[index].value_BHTE, new.value_BHTE], 2),
            )
        else:
            kept.append(new)
        mixed_B1D, _ = block.attention.attend(normal_B1D, kept[index].key_BHTC, kept[index].value_BHTE, sight)
        x_B1D = block.finished(x_B1D + mixed_B1D)
    return model.logits(x_B1D)[:, 0]
