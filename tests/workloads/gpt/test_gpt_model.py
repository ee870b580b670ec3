"""The GPT: what its logits depend on, generation with a cache, low-rank updates, gradients by hand, identities."""

from typing import Any

import pytest
import torch

from attnsweep.reproduction.boue.counts import BlockCache, next_logits
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.gpt.model import GPT, GPTShape

N_WORDS, N_CONTEXT = 7, 6


def random_gpt(seed: int = 0, layer_norm_eps: float = 1e-5, attention_scale: str = "inv_sqrt_d", **sizes: Any) -> GPT:
    """All parameters random, biases and gains too."""
    shape = GPTShape(**{"n_words": N_WORDS, "n_tokens": N_CONTEXT, "d_model": 8, "d_ffn": 9} | sizes)
    model = GPT(shape, layer_norm_eps=layer_norm_eps, attention_scale=attention_scale).double()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            noise = torch.randn(value.shape, generator=draw, dtype=torch.float64)
            value.copy_(noise / value.shape[-1] ** 0.5 if value.dim() > 1 else value + 0.3 * noise)
    return model


def random_batch(n_sequences: int = 2, n_tokens: int = 5, seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    token, target = (torch.randint(N_WORDS, (n_sequences, n_tokens), generator=draw) for _ in range(2))
    weight = torch.rand(n_sequences, n_tokens, generator=draw, dtype=torch.float64)
    return {"token": token, "target": target, "weight": weight}


SHAPES: dict[str, dict[str, Any]] = {
    "plain": {"n_blocks": 2},
    "merged, tied": {"qk": "merged", "n_heads": 2, "tied": True, "positions": "sinusoidal", "n_blocks": 2},
    "log n": {"attention_scale": "log_n_inv_sqrt_d", "qk_rank": 3, "positions": "none"},
}


@pytest.mark.parametrize("name", SHAPES)
def test_generation_with_a_cache_equals_the_full_pass(name: str) -> None:
    model, token_BT = random_gpt(**SHAPES[name]), random_batch()["token"]
    caches: list[BlockCache] = []
    with torch.no_grad():
        by_step = torch.stack([next_logits(model, token_B, caches) for token_B in token_BT.T], 1)
        torch.testing.assert_close(by_step, model(token_BT), rtol=0, atol=1e-12)
