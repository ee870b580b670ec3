"""The layers of Table 2 by hand, with plain products of matrices, for one sequence. Axes: T token, D model, V word."""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import gelu

from attnsweep.workloads.attention.block import TransformerBlock
from attnsweep.workloads.attention.sight import Sight
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.gpt.workload import GPTWorkload

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x.clamp(min=0.0),
    "gelu": lambda x: 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
}
States = dict[str, Tensor]
"""The stream after each layer, by the layer's name; of a model with several blocks, after the last of a kind."""


def states_of(model: GPT, batch: Batch) -> States:
    """What our model computes."""
    x = model.embedded(batch["token"])
    sight = Sight.causal(x) if model.shape.is_causal else Sight.everything(x)
    found = {"embeddings": x}
    for each in model.blocks:
        block = cast(TransformerBlock, each)
        given, weights = block.attention(block.attention_norm(x), sight)
        found |= {"attention weights": weights, "attention and projection": x + given}
        x = block(x, sight)[0]
        found["feed-forward part"] = x
    return found | {"logits": model.logits(x), "cross-entropy": GPTWorkload().loss(model, batch)}


def states_by_hand(model: GPT, batch: Batch) -> States:
    """The formulas, with the parameters by name."""
    p = {**dict(model.named_buffers()), **dict(model.named_parameters())}
    token_T, n = batch["token"][0], batch["token"].shape[1]
    x = p["token.weight"][token_T] + p["position"][:n]
    found = {"embeddings": x.unsqueeze(0)}
    for b in range(model.shape.n_blocks):
        at = f"blocks.{b}."
        given, weights = _attention(model, p, at + "attention.", _norm(p, at + "attention_norm.", x))
        x = x + given
        found |= {"attention weights": weights, "attention and projection": x.unsqueeze(0)}
        hidden = _ACTIVATIONS[model.shape.activation](_linear(p, at + "ffn.first.", _norm(p, at + "ffn_norm.", x)))
        x = x + _linear(p, at + "ffn.second.", hidden)
        found["feed-forward part"] = x.unsqueeze(0)
    y = _norm(p, "last_norm.", x)
    logits = y @ p["token.weight"].T if model.shape.is_tied else _linear(p, "head.", y)
    nats = torch.logsumexp(logits, 1) - logits[torch.arange(n), batch["target"][0]]
    loss = (nats * batch["weight"][0]).sum()
    return found | {"logits": logits.unsqueeze(0), "cross-entropy": loss}


def _linear(p: States, at: str, x: Tensor) -> Tensor:
    y = x @ p[at + "weight"].T + p[at + "bias"]
    if at + "down.weight" not in p:
        return y
    return y + p[at + "scale"] * x @ p[at + "down.weight"].T @ p[at + "up.weight"].T


def _norm(p: States, at: str, x: Tensor) -> Tensor:
    variance = ((x - x.mean(1, keepdim=True)) ** 2).mean(1, keepdim=True)
    return (x - x.mean(1, keepdim=True)) / torch.sqrt(variance + p[at + "layer_norm_eps"]) * p[at + "gain_D"] + p[
        at + "bias_D"
    ]


def _attention(model: GPT, p: States, at: str, x: Tensor) -> tuple[Tensor, Tensor]:
    n_heads, n = model.shape.n_heads, x.shape[0]
    query = _linear(p, at + "query.", x).chunk(n_heads, 1)
    key = [x] * n_heads if model.shape.qk == "merged" else _linear(p, at + "key.", x).chunk(n_heads, 1)
    value = _linear(p, at + "value.", x).chunk(n_heads, 1)
    weights = []
    for q, k in zip(query, key, strict=True):
        z = q @ k.T / math.sqrt(model.shape.d_model // n_heads)
        if model.shape.is_causal:
            z = z + torch.triu(torch.full((n, n), -math.inf, dtype=z.dtype), 1)
        weights.append(z.exp() / z.exp().sum(1, keepdim=True))
    mixed = torch.cat([r @ v for r, v in zip(weights, value, strict=True)], 1)
    return _linear(p, at + "out.", mixed), torch.stack(weights).unsqueeze(0)
