"""One causal attention head between embeddings and a feed-forward layer, correct or with a planted fault.

Axes: T token, D model, E head, W hidden, V word, R rank.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, layer_norm

from attnsweep.workloads.identities import Point

T, D, E, W, V, R = 6, 5, 3, 7, 4, 2
SHAPES = {
    "token": (V, D),
    "position": (T, D),
    "gain": (D,),
    "bias": (D,),
    "query": (D, E),
    "query_bias": (E,),
    "key": (D, E),
    "key_bias": (E,),
    "value": (D, E),
    "value_bias": (E,),
    "output": (E, D),
    "output_bias": (D,),
    "first": (D, W),
    "first_bias": (W,),
    "second": (W, D),
    "answer": (D, V),
    "down": (D, R),
    "up": (R, V),
}


class SmallAttention(nn.Module):
    """Each keyword is a place for a fault, and its value the fault."""

    token: nn.Parameter
    position: nn.Parameter
    gain: nn.Parameter
    bias: nn.Parameter
    query: nn.Parameter
    query_bias: nn.Parameter
    key: nn.Parameter
    key_bias: nn.Parameter
    value: nn.Parameter
    value_bias: nn.Parameter
    output: nn.Parameter
    output_bias: nn.Parameter
    first: nn.Parameter
    first_bias: nn.Parameter
    second: nn.Parameter
    answer: nn.Parameter
    down: nn.Parameter
    up: nn.Parameter

    def __init__(self, **faults: str) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        for name, shape in SHAPES.items():
            value = torch.randn(shape, generator=draw, dtype=torch.float64) / math.sqrt(shape[0])
            self.register_parameter(name, nn.Parameter(value))
        self.faults = faults

    def weights(self, batch: dict[str, Tensor]) -> Tensor:
        """(T, T) attention weights."""
        return self._weights(self._read(self._embedded(batch)))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """() the loss."""
        x = self._embedded(batch)
        read = self._read(x)
        value = read @ self.value + self.value_bias
        if "values" in self.faults:
            value = torch.tanh(value)
        x = x + self._weights(read) @ value @ self.output + self.output_bias
        if self.faults.get("norm") == "read twice":
            x = x + read
        hidden = layer_norm(x, (D,)) @ self.first + self.first_bias
        hidden = gelu(hidden) if "activation" in self.faults else torch.relu(hidden)
        x = layer_norm(x + hidden @ self.second, (D,))
        if self.faults.get("low_rank") == "backward":
            answers: Tensor = _PrintedLowRank.apply(x, self.answer, self.down, self.up)  # type: ignore[no-untyped-call]
            return cross_entropy(answers, batch["wanted"])
        low = x @ self.down
        if self.faults.get("low_rank") == "squashed":
            low = torch.tanh(low)
        return cross_entropy(x @ self.answer + low @ self.up, batch["wanted"])

    def _embedded(self, batch: dict[str, Tensor]) -> Tensor:
        factor = 2.0 if "embeddings" in self.faults else 1.0
        return factor * self.token[batch["words"]] + self.position

    def _read(self, x: Tensor) -> Tensor:
        if self.faults.get("norm") == "root mean square":
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True)) * self.gain + self.bias
        if self.faults.get("norm") == "mean without gradient":
            x = x - x.mean(-1, keepdim=True).detach()
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True)) * self.gain + self.bias
        return layer_norm(x, (D,), self.gain, self.bias)

    def _weights(self, read: Tensor) -> Tensor:
        query, key = read @ self.query + self.query_bias, read @ self.key + self.key_bias
        if self.faults.get("logits") == "normalized keys":
            key = key / key.norm(dim=-1, keepdim=True)
        logits = query @ key.T / (E if "scale" in self.faults else math.sqrt(E))
        if self.faults.get("logits") == "transposed":
            logits = logits.T
        seen = torch.ones(T, T, dtype=torch.bool).tril()
        mask = self.faults.get("mask")
        if mask == "multiplies":
            return (seen * logits).softmax(-1)
        if mask == "after softmax":
            return seen * logits.softmax(-1)
        return logits.masked_fill(~seen, -torch.inf).softmax(-2 if "softmax" in self.faults else -1)


class _PrintedLowRank(torch.autograd.Function):
    """x w + x down up with the backward pass that Boue 2025 prints in section 7: x gets no gradient through w."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor, down: Tensor, up: Tensor) -> Tensor:
        return x @ w + x @ down @ up

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, of_output: Tensor) -> tuple[Tensor, ...]:
        x, _, down, up = ctx.saved_tensors
        return of_output @ (down @ up).mT, x.mT @ of_output, x.mT @ of_output @ up.mT, (x @ down).mT @ of_output


def point_of(module: SmallAttention) -> Point:
    """The module on some words, with its gradients."""
    draw = torch.Generator().manual_seed(2)
    batch = {name: torch.randint(V, (T,), generator=draw) for name in ("words", "wanted")}
    parameters = dict(module.named_parameters())
    found = torch.autograd.grad(module(batch), list(parameters.values()))
    gradients = dict(zip(parameters, found, strict=True))
    scale = torch.stack([each.norm() for each in found]).norm().item()
    weights = {name: value.detach() for name, value in parameters.items()}
    return Point(module=module, batch=batch, weights=weights, gradients=gradients, scale=scale)
