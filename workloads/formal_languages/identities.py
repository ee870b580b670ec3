"""Equations that the gradients of a post-norm encoder satisfy at all weights. They check computed gradients.

LayerNorms follow the residual sums, so they remove the mean of a sublayer's output, and the output of a LayerNorm is
read by the next sublayer and by the residual sum behind it. Axes: see `encoder`.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.formal_languages.data import tokens_of
from attnsweep.workloads.formal_languages.encoder import Encoder
from attnsweep.workloads.formal_languages.parameters import FormalLanguagesParameters
from attnsweep.workloads.identities import (
    AttentionRows,
    Identity,
    Part,
    Reader,
    RedundantBias,
    RowSums,
    norm_gain,
    relu_neurons,
)
from attnsweep.workloads.identities.groups import attention_layer, outputs


def identities_of(parameters: FormalLanguagesParameters) -> tuple[Identity, ...]:
    last = parameters.n_layers - 1
    identities: list[Identity] = [AttentionRows(name="attention of CLS", weights=_weights_of_cls)]
    for layer in range(parameters.n_layers):
        identities += _attention_identities(parameters, layer)
        identities.append(_feed_forward_identity(layer))
        if parameters.layer_norm:
            identities += _norm_identities(parameters, layer)
    if parameters.layer_norm:
        identities.append(_last_gain(last))
    return tuple(identities)


def _attention_identities(parameters: FormalLanguagesParameters, layer: int) -> Iterator[Identity]:
    D, K = parameters.d_model, parameters.d_model // parameters.n_heads
    projection = _part(layer, "in_weight_DE"), _part(layer, "in_bias_E")
    query, key, value = (outputs(projection, slice(start, start + D)) for start in (0, D, 2 * D))
    out = _part(layer, "out_weight_DD"), _part(layer, "out_bias_D")
    yield from attention_layer(f"layer {layer}", parameters.n_heads, (K, K), query=query, key=key, value=value, out=out)


def _feed_forward_identity(layer: int) -> Identity:
    first = _part(layer, "first_weight_DW"), _part(layer, "first_bias_W")
    return relu_neurons(f"layer {layer}", first, _part(layer, "second_weight_WD"))


def _norm_identities(parameters: FormalLanguagesParameters, layer: int) -> Iterator[Identity]:
    for name in ("out_weight_DD", "out_bias_D", "second_weight_WD", "second_bias_D"):
        yield RowSums(name=f"{name} of layer {layer}", part=_part(layer, name))
    yield RedundantBias(
        name=f"the bias of the norm after attention in layer {layer}",
        bias=_part(layer, "attended_bias_D"),
        readers=(
            Reader(_part(layer, "first_bias_W"), _part(layer, "first_weight_DW")),
            Reader(_part(layer, "second_bias_D")),
        ),
    )
    following = layer + 1
    if following == parameters.n_layers:
        readers = [Reader(Part("answer_bias_1"), Part("answer_weight_D1"))]
    elif parameters.attention_scale == "log_n_query_inv_sqrt_d":
        # With this `attention_scale`, the queries are multiplied by log n, where n is the length of the string, before
        # the query bias is added. So the effect of the norm's bias on the queries depends on n, and no single change of
        # the query bias makes up for it in all strings. Therefore the norm's bias is not redundant.
        return
    else:
        projection = Reader(_part(following, "in_bias_E"), _part(following, "in_weight_DE"))
        readers = [projection, Reader(_part(following, "out_bias_D"))]
    yield RedundantBias(
        name=f"the bias of the norm at the end of layer {layer}",
        bias=_part(layer, "output_bias_D"),
        readers=readers,
    )


def _last_gain(last: int) -> Identity:
    gain_and_bias = _part(last, "output_gain_D"), _part(last, "output_bias_D")
    return norm_gain("the last norm", gain_and_bias, (Part("answer_weight_D1"),))


def _part(layer: int, name: str) -> Part:
    return Part(f"layers.{layer}.{name}")


def _weights_of_cls(module: nn.Module, batch: Batch) -> Tensor:
    return torch.stack(cast(Encoder, module).trace(tokens_of(batch))[1])
