"""Equations that the gradients of a translator satisfy at all weights: a check of computed gradients.

LayerNorms come before each sublayer and at the ends of encoder and decoder, so they remove the mean of all that is
added to a residual stream before it is read. Axes: see `translator`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import cast

from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.identities import AttentionRows, Identity, Part, RowSums, relu_neurons
from attnsweep.workloads.identities.groups import Layer, attention_layer, merged_keys, norm_before, outputs
from attnsweep.workloads.translation.model import TranslationModel
from attnsweep.workloads.translation.parameters import TranslationParameters
from attnsweep.workloads.translation.translator import LAYERS

_FEED_FORWARD = ("encoder_ffn", "decoder_ffn")
_KEYS_OF = {"encoder_self": "encoder_self", "decoder_self": "decoder_self", "encoder_end": "cross"}
"""The attention layer whose keys are computed from the output of each norm, by the name of the norm."""


def identities_of(parameters: TranslationParameters) -> tuple[Identity, ...]:
    return (
        *_stream_identities(parameters),
        *_attention_identities(parameters),
        *_feed_forward_identities(),
        *_norm_identities(parameters),
    )


def _stream_identities(parameters: TranslationParameters) -> Iterator[Identity]:
    for name in ("word_weight_DV", "word_bias_V"):
        yield RowSums(name=name, part=_part(name), because="softmax")
    if parameters.dropout:
        # With dropout, the output of a layer is masked before it is normalized. So the norm does not remove the mean of
        # this output, and the identities below do not hold.
        return
    for name in ("source_embedding_VD", "target_embedding_VD"):
        yield RowSums(name=name, part=_part(name))
    for layer in LAYERS:
        for name in ("out_weight_DD", "out_bias_D"):
            yield RowSums(name=f"{name} of {layer}", part=_part(f"{layer}.{name}"))
    for layer in _FEED_FORWARD:
        for name in ("second_weight_WD", "second_bias_D"):
            yield RowSums(name=f"{name} of {layer}", part=_part(f"{layer}.{name}"))


def _attention_identities(parameters: TranslationParameters) -> Iterator[Identity]:
    E = parameters.d_model // parameters.n_heads
    C = parameters.qk_rank or E
    made_keys = parameters.n_heads * C if parameters.qk == "factored" else 0
    for layer in LAYERS:
        weights, key_value = partial(_weights, layer), _keys_and_values(layer)
        yield AttentionRows(name=f"attention of {layer}", weights=weights, is_causal=layer == "decoder_self")
        yield from attention_layer(
            layer,
            parameters.n_heads,
            (C, E),
            query=_queries(layer),
            key=outputs(key_value, slice(made_keys)) if made_keys else None,
            value=outputs(key_value, slice(made_keys, None)),
            out=(_part(f"{layer}.out_weight_DD"), _part(f"{layer}.out_bias_D")),
        )


def _feed_forward_identities() -> Iterator[Identity]:
    for layer in _FEED_FORWARD:
        yield relu_neurons(layer, _first(layer), _part(f"{layer}.second_weight_WD"))


def _norm_identities(parameters: TranslationParameters) -> Iterator[Identity]:
    for norm, layers in _readers().items():
        is_key = parameters.qk == "merged" and norm in _KEYS_OF
        keys = merged_keys(_queries(_KEYS_OF[norm]), parameters.n_heads, parameters.d_model) if is_key else []
        gain_and_bias = _part(f"norms.{norm}.gain_D"), _part(f"norms.{norm}.bias_D")
        yield from norm_before(f"norm {norm}", gain_and_bias, layers, keys)


def _readers() -> Mapping[str, Sequence[Layer]]:
    """Returns which layers read the output of each LayerNorm, by the name of the LayerNorm."""
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


def _part(name: str) -> Part:
    return Part(f"translator.{name}")


def _weights(layer: str, module: nn.Module, batch: Batch) -> Tensor:
    return cast(TranslationModel, module).attention(batch)[layer]
