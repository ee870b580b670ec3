"""GPTs with random weights, and a batch for them, in float64."""

from typing import Any

import torch

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.gpt.model import GPT, GPTShape

N_WORDS, N_CONTEXT = 7, 6


def random_gpt(seed: int = 0, layer_norm_eps: float = 1e-5, attention_scale: str = "inv_sqrt_d", **sizes: Any) -> GPT:
    """All parameters random, biases and gains too."""
    shape = GPTShape(**{"n_words": N_WORDS, "n_tokens": N_CONTEXT, "d_model": 8, "d_ffn": 9} | sizes)
    model = GPT(shape, layer_norm_eps=layer_norm_eps, attention_scale=attention_scale, lora_scale=1.7).double()
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
