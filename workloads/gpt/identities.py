"""Equations that the gradients of a GPT satisfy at all weights, because the loss is constant along some directions of
the weights. They check computed gradients.

LayerNorms remove the mean of all that is added to the residual stream before it is read, and the last layer feeds a
softmax. Weights have the axes (outputs, inputs), as in PyTorch; identities need (inputs, outputs). Source:
docs/gradients.md; Boue 2025, Table 3.
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
from attnsweep.workloads.identities.groups import Layer, attention_layer, merged_keys, norm_before

_WRITES = ("attention.out", "ffn.second")
"""The layers of a block that add to the residual stream."""


def identities_of(parameters: GPTParameters) -> tuple[Identity, ...]:
    identities: list[Identity] = [
        AttentionRows(name="attention", weights=_weights, is_causal=True),
        ClosedForm(name="all gradients", source="Boue 2025, Table 3", gradients=_by_hand),
    ]
    if parameters.lora_rank is not None:
        return (*identities, *_update_identities(parameters))
    identities += _embedding_identities(parameters)
    for block in range(parameters.n_blocks):
        path = f"blocks.{block}"
        for layer in _WRITES:
            identities.append(RowSums(name=f"{path}.{layer}.weight", part=_weight(f"{path}.{layer}").T))
            identities.append(RowSums(name=f"{path}.{layer}.bias", part=_bias(f"{path}.{layer}")))
        identities += _attention_identities(parameters, f"{path}.attention")
        identities += _feed_forward_identities(parameters, path)
    return (*identities, *_head_identities(parameters))


def _embedding_identities(parameters: GPTParameters) -> Iterator[Identity]:
    """Yields equations that the gradients of the embeddings satisfy at all weights. If the last layer shares the token
    embeddings (tied), yields only those of the position embeddings: the shared weights also get the last layer's
    gradient.
    """
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


def _attention_identities(parameters: GPTParameters, path: str) -> Iterator[Identity]:
    D, H = parameters.d_model, parameters.n_heads
    query, key, value, out = (_layer(f"{path}.{name}") for name in ("query", "key", "value", "out"))
    is_factored = parameters.qk == "factored"
    widths = parameters.qk_rank or D // H, D // H
    yield from attention_layer(path, H, widths, query=query, key=key if is_factored else None, value=value, out=out)
    readers, keys = ((query, key, value), []) if is_factored else ((query, value), merged_keys(query, H, D))
    yield from norm_before(f"{path}_norm", _gain_and_bias(f"{path}_norm"), readers, keys)


def _feed_forward_identities(parameters: GPTParameters, path: str) -> Iterator[Identity]:
    first, norm = _layer(f"{path}.ffn.first"), f"{path}.ffn_norm"
    if parameters.activation == "relu":
        yield relu_neurons(path, first, _layer(f"{path}.ffn.second")[0])
    yield from norm_before(norm, _gain_and_bias(norm), (first,))


def _head_identities(parameters: GPTParameters) -> Iterator[Identity]:
    if parameters.tied:
        return
    yield RowSums(name="head.weight", part=_weight("head").T, because="softmax")
    yield RowSums(name="head.bias", part=_bias("head"), because="softmax")
    yield from norm_before("last_norm", _gain_and_bias("last_norm"), (_layer("head"),))


def _update_identities(parameters: GPTParameters) -> Iterator[Identity]:
    """Yields equations that the gradients of low-rank updates of the weights satisfy at all weights, for models in
    which only these updates are trained."""
    query_key = ("query", "key") if parameters.qk == "factored" else ("query",)
    block_layers = [*(f"attention.{name}" for name in (*query_key, "value", "out")), "ffn.first", "ffn.second"]
    layers = [f"blocks.{block}.{layer}" for block in range(parameters.n_blocks) for layer in block_layers]
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
