"""What holds for layers of transformers, whoever holds their weights. Axes: D model, H head, C key, E value."""

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
    """Attention with a softmax, its heads side by side.

    Args:
        name: Such as `layer 0`.
        n_heads: H.
        widths: C and E.
        query, key, value, out: The layers; `key` is `None` where the tokens are the keys.
    """
    if key is not None:
        yield KeyBias(name=name, key=key[1], query=query[1])
    yield RedundantBias(name=f"the values' bias of {name}", bias=value[1], readers=(Reader(out[1], out[0]),))
    C, E = widths
    for head in range(n_heads):
        asks, gives = slice(head * C, (head + 1) * C), slice(head * E, (head + 1) * E)
        if key is not None:
            yield queries_and_keys(f"{name}, head {head}", outputs(query, asks), outputs(key, asks))
        yield values_and_output(f"{name}, head {head}", outputs(value, gives), out[0][gives])


def norm_before(
    name: str, gain_and_bias: Layer, layers: Sequence[Layer], keys: Sequence[Part] = ()
) -> Iterator[Identity]:
    """A norm that some layers read and nothing else.

    Args:
        name: Of the norm.
        gain_and_bias: Its parameters, (D,) each.
        layers: What reads it.
        keys: From `merged_keys`, if it is read as keys itself.
    """
    yield norm_gain(name, gain_and_bias, (*(weight for weight, _ in layers), *keys))
    readers = tuple(Reader(bias, weight) for weight, bias in layers)
    yield RedundantBias(name=f"the bias of {name}", bias=gain_and_bias[1], readers=readers)


def merged_keys(query: Layer, n_heads: int, d_model: int) -> list[Part]:
    """What reads the tokens as keys, where a norm's output itself is the key: by channel of the key."""
    heads = [slice(head * d_model, (head + 1) * d_model) for head in range(n_heads)]
    weight, bias = query
    return [part for head in heads for part in (weight[:, head].T, bias[head].column)]


def outputs(layer: Layer, some: slice) -> Layer:
    """Some outputs of a layer."""
    weight, bias = layer
    return weight[:, some], bias[some]
