"""The identities of transformer layers. Axes: D channel of the model, H head, C channel of a key, E of a value."""

from collections.abc import Iterator, Sequence

from attnsweep.workloads.identities.flat import KeyBias
from attnsweep.workloads.identities.groups import norm_gain, queries_and_keys, values_and_output
from attnsweep.workloads.identities.identity import Identity
from attnsweep.workloads.identities.parts import Part
from attnsweep.workloads.identities.redundant import Reader, RedundantBias

Layer = tuple[Part, Part]
"""A linear layer's weight (inputs, outputs) and bias."""


def attention_layer(
    name: str, n_heads: int, widths: tuple[int, int], *, query: Layer, key: Layer | None, value: Layer, out: Layer
) -> Iterator[Identity]:
    """Yields the identities of a softmax attention layer that concatenates its heads.

    Args:
        name: The layer, such as `layer 0`.
        n_heads: H.
        widths: C and E.
        query, key, value, out: The linear layers; `key` is `None` if the tokens themselves are the keys.
    """
    if key is not None:
        yield KeyBias(name=name, key=key[1], query=query[1])
    yield RedundantBias(name=f"the values' bias of {name}", bias=value[1], readers=(Reader(out[1], out[0]),))
    C, E = widths
    for head in range(n_heads):
        query_channels, value_channels = slice(head * C, (head + 1) * C), slice(head * E, (head + 1) * E)
        if key is not None:
            yield queries_and_keys(f"{name}, head {head}", outputs(query, query_channels), outputs(key, query_channels))
        yield values_and_output(f"{name}, head {head}", outputs(value, value_channels), out[0][value_channels])


def norm_before(
    name: str, gain_and_bias: Layer, layers: Sequence[Layer], keys: Sequence[Part] = ()
) -> Iterator[Identity]:
    """Yields the identities of a norm whose output only the given layers read.

    Args:
        name: The norm.
        gain_and_bias: The norm's parameters, gain (D,) and bias (D,).
        layers: The linear layers that read the norm.
        keys: The result of `merged_keys`, if the norm's output is also used as keys.
    """
    yield norm_gain(name, gain_and_bias, (*(weight for weight, _ in layers), *keys))
    readers = tuple(Reader(bias, weight) for weight, bias in layers)
    yield RedundantBias(name=f"the bias of {name}", bias=gain_and_bias[1], readers=readers)


def merged_keys(query: Layer, n_heads: int, d_model: int) -> list[Part]:
    """Returns the parts of the query layer that multiply the keys, if the keys are the output of a norm itself.

    Their rows are the channels of the key.
    """
    heads = [slice(head * d_model, (head + 1) * d_model) for head in range(n_heads)]
    weight, bias = query
    return [part for head in heads for part in (weight[:, head].T, bias[head].column)]


def outputs(layer: Layer, channels: slice) -> Layer:
    """Selects some outputs of a layer: columns of its weight and entries of its bias."""
    weight, bias = layer
    return weight[:, channels], bias[channels]
