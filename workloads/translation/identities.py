"""What the gradients of a translator satisfy exactly.

Its norms stand before each sublayer and at the ends, so all that is added to a residual stream loses its mean before it
is read. Axes: see `translator`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import cast

from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.identities import (
    AttentionRows,
    Identity,
    KeyBias,
    Part,
    Reader,
    RedundantBias,
    RowSums,
    norm_gain,
    queries_and_keys,
    relu_neurons,
    values_and_output,
)
from attnsweep.workloads.translation.model import TranslationModel
from attnsweep.workloads.translation.parameters import TranslationParameters
from attnsweep.workloads.translation.translator import LAYERS

Layer = tuple[Part, Part]
"""A layer's weight (inputs, outputs) and bias."""

_FEED_FORWARD = ("encoder_ffn", "decoder_ffn")
_KEYS_OF = {"encoder_self": "encoder_self", "decoder_self": "decoder_self", "encoder_end": "cross"}
"""The layer whose keys are made of a norm's output."""


def identities_of(parameters: TranslationParameters) -> tuple[Identity, ...]:
    """All that hold for a training with these parameters."""
    return (*_of_streams(parameters), *_of_heads(parameters), *_of_feed_forward(), *_of_norms(parameters))


def _of_streams(parameters: TranslationParameters) -> Iterator[Identity]:
    for name in ("word_weight_DV", "word_bias_V"):
        yield RowSums(name=name, part=_part(name), because="softmax")
    if parameters.dropout:
        return  # What is masked has no mean that a norm would remove.
    for name in ("source_embedding_VD", "target_embedding_VD"):
        yield RowSums(name=name, part=_part(name))
    for layer in LAYERS:
        for name in ("out_weight_DD", "out_bias_D"):
            yield RowSums(name=f"{name} of {layer}", part=_part(f"{layer}.{name}"))
    for layer in _FEED_FORWARD:
        for name in ("second_weight_WD", "second_bias_D"):
            yield RowSums(name=f"{name} of {layer}", part=_part(f"{layer}.{name}"))


def _of_heads(parameters: TranslationParameters) -> Iterator[Identity]:
    E = parameters.d_model // parameters.n_heads
    C = parameters.qk_rank or E
    is_factored = parameters.qk == "factored"
    made_keys = parameters.n_heads * C if is_factored else 0
    for layer in LAYERS:
        query, key_value, output = _queries(layer), _keys_and_values(layer), _part(f"{layer}.out_weight_DD")
        weights = partial(_weights, layer)
        yield AttentionRows(name=f"attention of {layer}", weights=weights, is_causal=layer == "decoder_self")
        if is_factored:
            yield KeyBias(name=layer, key=key_value[1][:made_keys], query=query[1])
        readers = (Reader(_part(f"{layer}.out_bias_D"), output),)
        yield RedundantBias(name=f"the values' bias of {layer}", bias=key_value[1][made_keys:], readers=readers)
        for head in range(parameters.n_heads):
            name, key, mixed = f"{layer}, head {head}", _slice(head, C), _slice(head, E)
            if is_factored:
                yield queries_and_keys(name, _columns(query, key), _columns(key_value, key))
            value = slice(made_keys + mixed.start, made_keys + mixed.stop)
            yield values_and_output(name, _columns(key_value, value), output[mixed])


def _slice(head: int, width: int) -> slice:
    return slice(head * width, (head + 1) * width)


def _of_feed_forward() -> Iterator[Identity]:
    for layer in _FEED_FORWARD:
        yield relu_neurons(layer, _first(layer), _part(f"{layer}.second_weight_WD"))


def _of_norms(parameters: TranslationParameters) -> Iterator[Identity]:
    for norm, layers in _readers().items():
        gain, bias = _part(f"norms.{norm}.gain_D"), _part(f"norms.{norm}.bias_D")
        weights = [weight for weight, _ in layers]
        if parameters.qk == "merged" and norm in _KEYS_OF:
            weights += _merged_keys(parameters, _KEYS_OF[norm])
        yield norm_gain(f"norm {norm}", (gain, bias), weights)
        readers = [Reader(own_bias, weight) for weight, own_bias in layers]
        yield RedundantBias(name=f"the bias of norm {norm}", bias=bias, readers=readers)


def _merged_keys(parameters: TranslationParameters, layer: str) -> list[Part]:
    """What reads a norm's output as keys, where that output itself is the key: by channel of the key."""
    weight, bias = _queries(layer)
    heads = [_slice(head, parameters.d_model) for head in range(parameters.n_heads)]
    return [part for some in heads for part in (weight[:, some].T, bias[some].column)]


def _readers() -> Mapping[str, Sequence[Layer]]:
    """The layers that read each norm."""
    return {
        **{layer: (_queries(layer), _keys_and_values(layer)) for layer in ("encoder_self", "decoder_self")},
        "cross": (_queries("cross"),),
        "encoder_end": (_keys_and_values("cross"),),
        **{layer: (_first(layer),) for layer in _FEED_FORWARD},
        "decoder_end": ((_part("word_weight_DV"), _part("word_bias_V")),),
    }


def _queries(layer: str) -> Layer:
    return _part(f"{layer}.query_weight_DD"), _part(f"{layer}.query_bias_D")


def _keys_and_values(layer: str) -> Layer:
    return _part(f"{layer}.key_value_weight_DE"), _part(f"{layer}.key_value_bias_E")


def _first(layer: str) -> Layer:
    return _part(f"{layer}.first_weight_DW"), _part(f"{layer}.first_bias_W")


def _columns(layer: Layer, some: slice) -> Layer:
    weight, bias = layer
    return weight[:, some], bias[some]


def _part(name: str) -> Part:
    return Part(f"translator.{name}")


def _weights(layer: str, module: nn.Module, batch: Batch) -> Tensor:
    """(B, H, Q, K)."""
    return cast(TranslationModel, module).attention(batch)[layer]
