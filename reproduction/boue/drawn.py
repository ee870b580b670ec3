"""The models and the batch that formulas are compared on, in float64."""

import math

import torch

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.gpt.model import GPT, GPTShape


def random_model(shape: GPTShape, layer_norm_eps: float = 1e-5) -> GPT:
    """A model with all parameters random, gains and biases too."""
    model = GPT(shape, layer_norm_eps=layer_norm_eps, lora_scale=1.7).double()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in model.parameters():
            noise = torch.randn(value.shape, generator=draw, dtype=torch.float64)
            value.copy_(noise / math.sqrt(value.shape[-1]) if value.dim() > 1 else value + 0.3 * noise)
    return model


def random_batch(n_words: int, n_tokens: int = 7) -> Batch:
    """One sequence, random targets, and a random weight for each token."""
    draw = torch.Generator().manual_seed(2)
    token, target = (torch.randint(n_words, (1, n_tokens), generator=draw) for _ in range(2))
    return {"token": token, "target": target, "weight": torch.rand(1, n_tokens, generator=draw, dtype=torch.float64)}
