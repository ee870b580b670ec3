"""What the gradients of a GPT satisfy exactly, at any depth: flat directions, redundant biases, gauge groups.

All that is added to the residual stream loses its mean before it is read, and the last layer feeds a softmax. Weights
are (outputs, inputs), as PyTorch's; identities read (inputs, outputs). Source: docs/gradients.md; Boue 2025, Table 3.
"""

from collections.abc import Iterator
from typing import cast

from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.gpt.backward import gradients_by_hand
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.gpt.parameters import GPTParameters
from attnsweep.workloads.identities import (
    AttentionRows,
    ClosedForm,
    EqualSums,
    Identity,
    Part,
    RowSums,
    low_rank,
    relu_neurons,
    rescaling,
)
from attnsweep.workloads.identities.layers import Layer, attention_layer, merged_keys, norm_before

_WRITES = ("attention.out", "ffn.second")
"""The layers of a block that write to the residual stream."""


def identities_of(parameters: GPTParameters) -> tuple[Identity, ...]:
    """All that hold for a training with these parameters."""
    found: list[Identity] = [
        AttentionRows(name="attention", weights=_weights, is_causal=True),
        ClosedForm(name="all gradients", source="Boue 2025, Table 3", gradients=_by_hand),
    ]
    if parameters.lora_rank is not None:
        return (*found, *_of_updates(parameters))
    found += _of_embeddings(parameters)
    for block in range(parameters.n_blocks):
        at = f"blocks.{block}"
        for layer in _WRITES:
            found.append(RowSums(name=f"{at}.{layer}.weight", part=_weight(f"{at}.{layer}").T))
            found.append(RowSums(name=f"{at}.{layer}.bias", part=_bias(f"{at}.{layer}")))
        found += _of_attention(parameters, f"{at}.attention")
        found += _of_feed_forward(parameters, at)
    return (*found, *_of_head(parameters))


def _of_embeddings(parameters: GPTParameters) -> Iterator[Identity]:
    """The rows of tied embeddings are read by the last layer too."""
    token, position = Part("token.weight"), Part("position")
    is_learned = parameters.positions == "learned"
    if is_learned:
        yield RowSums(name="position", part=position)
    if parameters.tied:
        return
    yield RowSums(name="token", part=token)
    if is_learned:
        yield EqualSums(name="tokens and positions", left=token, right=position)
    if parameters.layer_norm_eps == 0.0 and parameters.positions != "sinusoidal":
        layers = [f"blocks.{block}.{layer}" for block in range(parameters.n_blocks) for layer in _WRITES]
        written = [part for layer in layers for part in (_weight(layer), _bias(layer))]
        yield rescaling("the residual stream", [token, *([position] if is_learned else []), *written])


def _of_attention(parameters: GPTParameters, at: str) -> Iterator[Identity]:
    D, H = parameters.d_model, parameters.n_heads
    query, key, value, out = (_layer(f"{at}.{name}") for name in ("query", "key", "value", "out"))
    is_factored = parameters.qk == "factored"
    widths = parameters.qk_rank or D // H, D // H
    yield from attention_layer(at, H, widths, query=query, key=key if is_factored else None, value=value, out=out)
    readers, keys = ((query, key, value), []) if is_factored else ((query, value), merged_keys(query, H, D))
    yield from norm_before(f"{at}_norm", _gain_and_bias(f"{at}_norm"), readers, keys)


def _of_feed_forward(parameters: GPTParameters, at: str) -> Iterator[Identity]:
    first, norm = _layer(f"{at}.ffn.first"), f"{at}.ffn_norm"
    if parameters.activation == "relu":
        yield relu_neurons(at, first, _layer(f"{at}.ffn.second")[0])
    yield from norm_before(norm, _gain_and_bias(norm), (first,))


def _of_head(parameters: GPTParameters) -> Iterator[Identity]:
    if parameters.tied:
        return
    yield RowSums(name="head.weight", part=_weight("head").T, because="softmax")
    yield RowSums(name="head.bias", part=_bias("head"), because="softmax")
    yield from norm_before("last_norm", _gain_and_bias("last_norm"), (_layer("head"),))


def _of_updates(parameters: GPTParameters) -> Iterator[Identity]:
    """Of low-rank updates; all else is frozen."""
    query_key = ("query", "key") if parameters.qk == "factored" else ("query",)
    of_block = [*(f"attention.{name}" for name in (*query_key, "value", "out")), "ffn.first", "ffn.second"]
    layers = [f"blocks.{block}.{layer}" for block in range(parameters.n_blocks) for layer in of_block]
    for layer in (*layers, "head"):
        down, up = _weight(f"{layer}.down"), _weight(f"{layer}.up")
        yield low_rank(layer, down.T, up.T)
        if layer.endswith(_WRITES):
            yield RowSums(name=f"{layer}.up.weight", part=up.T)
    yield RowSums(name="head.up.weight", part=_weight("head.up").T, because="softmax")


def _weight(layer: str) -> Part:
    return Part(f"{layer}.weight")


def _bias(layer: str) -> Part:
    return Part(f"{layer}.bias")


def _layer(name: str) -> Layer:
    return _weight(name).T, _bias(name)


def _gain_and_bias(norm: str) -> Layer:
    return Part(f"{norm}.gain_D"), Part(f"{norm}.bias_D")


def _weights(module: nn.Module, batch: Batch) -> Tensor:
    return cast(GPT, module).attention(batch["token"])


def _by_hand(module: nn.Module, batch: Batch) -> dict[str, Tensor]:
    return gradients_by_hand(cast(GPT, module), batch)
