"""Gauge groups: joint changes of two weight matrices, called left and right, that leave their product, and with it the
loss, unchanged.

If the loss depends on left and right only through left right^t, then left S and right S^-t give the same loss for every
invertible S (r x r; r: the number of their columns). So at any weights, left^t d(left) = (right^t d(right))^t, where d
is the gradient. Hence the charge left^t left - right^t right is constant under gradient flow, and one step of gradient
descent with learning rate eta changes it by exactly eta^2 (d(left)^t d(left) - d(right)^t d(right)). Source:
docs/gradients.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnsweep.workloads.identities.equations import KeyBias, Reader, RedundantBias
from attnsweep.workloads.identities.identity import (
    Conserved,
    Error,
    Identity,
    Part,
    Point,
    largest,
    parameters_of,
    stacked,
)

Kind = Literal["qk", "vo", "neurons", "low_rank", "norm_gain", "scale"]

_REASONS: Mapping[Kind, str] = {
    "qk": "the logits do not depend on q k^t alone: a norm or an activation acts on one, or a weight is transposed",
    "vo": "the output is not a function of the product of value and output weights: something acts between them",
    "neurons": "a neuron's output does not scale with its input: the activation is no ReLU, or a weight is transposed",
    "low_rank": "the layer is not a function of the product of the two low-rank factors, forward or backward",
    "norm_gain": "the loss depends on the norm's gain and bias in another way than through these weights",
    "scale": "the loss does not depend on the product of these parameters alone",
}


@dataclass(frozen=True, kw_only=True)
class Group(Conserved):
    """A gauge group: joint changes of two weight matrices, left and right, that leave the loss unchanged. The functions
    of this module make the groups of common layers, such as that of attention's query and key weights.

    Attributes:
        left, right: The parts that make the matrices left and right, one below the other, all with r columns. A bias is
            a row on the side of its weight. If `right` is empty, the loss does not depend on the scale of `left`.
        diagonal: Whether only each column of left may be multiplied by a positive number and the same column of right
            divided by it, because a nonlinearity acts on every column.
    """

    name: str
    kind: Kind
    left: Sequence[Part]
    right: Sequence[Part] = ()
    diagonal: bool = False

    @property
    def quantity(self) -> str:
        return f"charge_{self.kind}"

    def conserved(self, weights: Mapping[str, Tensor]) -> Tensor:
        return self.charge(weights)

    def moved(self, gradients: Mapping[str, Tensor]) -> Tensor:
        return self.charge(gradients)

    def charge(self, state: Mapping[str, Tensor]) -> Tensor:
        """Computes left^t left - right^t right for the two weight matrices, left and right, that the gauge group
        changes together; with `diagonal`, only the diagonal of this difference.

        For weights this is the charge that gradient flow conserves. For gradients, times the learning rate squared, it
        is the change of the charge in one step of plain gradient descent.
        """
        left, right = self._sides(state)
        return self._products(left, left) - self._products(right, right)

    def errors(self, at: Point) -> list[Error]:
        (left, right), (d_left, d_right) = self._sides(at.weights), self._sides(at.gradients)
        residual = self._products(left, d_left) - self._products(d_right, right)
        size = left.norm().item() + right.norm().item()
        names = ", ".join(parameters_of([*self.left, *self.right]))
        return [Error(names, largest(residual) / at.scale / max(size, torch.finfo(left.dtype).tiny))]

    def reason(self, at: Point) -> str:
        del at
        return f"{self.name}: {_REASONS[self.kind]}"

    def _sides(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        left = stacked(self.left, state)
        return left, stacked(self.right, state) if self.right else left[:0]

    def _products(self, one: Tensor, other: Tensor) -> Tensor:
        return (one * other).sum(0) if self.diagonal else one.mT @ other


def queries_and_keys(name: str, query: Sequence[Part], key: Sequence[Part]) -> Group:
    """Describes the joint changes of one head's query and key weights that leave the loss unchanged, because logits
    depend only on the product of the two.

    Args:
        query, key: The weight (inputs, r) and, if there is one, the bias (r,).
    """
    return Group(name=f"queries and keys of {name}", kind="qk", left=query, right=key)


def values_and_output(name: str, value: Sequence[Part], output: Part) -> Group:
    """Describes the joint changes of one head's value and output weights that leave the loss unchanged, because the
    head's output depends only on the product of the two.

    Args:
        value: The values' weight (inputs, r) and, if there is one, their bias (r,).
        output: The head's rows of the output projection, (r, outputs).
    """
    return Group(name=f"values and output of {name}", kind="vo", left=value, right=(output.T,))


def relu_neurons(name: str, first: Sequence[Part], second: Part) -> Group:
    """Describes joint changes of two layers with ReLU between them that leave the loss unchanged: multiplying a
    neuron's input weights by c > 0, and dividing its output weights by c.

    This does not hold for GELU.

    Args:
        first: The first layer's weight (inputs, r) and, if there is one, its bias (r,).
        second: The second layer's weight (r, outputs).
    """
    return Group(name=f"neurons of {name}", kind="neurons", left=first, right=(second.T,), diagonal=True)


def low_rank(name: str, down: Part, up: Part) -> Group:
    """Describes the joint changes of the two factors of a low-rank update that leave the loss unchanged, because it
    depends only on their product `down up`.

    Args:
        down: The first factor (inputs, r).
        up: The second factor (r, outputs).
    """
    return Group(name=f"low-rank factors of {name}", kind="low_rank", left=(down,), right=(up.T,))


def norm_gain(name: str, gain_and_bias: Sequence[Part], readers: Sequence[Part]) -> Group:
    """Describes changes that leave the loss unchanged: multiplying the gain and bias of a feature in a norm by c > 0,
    and dividing the weights that read this feature by c.

    Args:
        gain_and_bias: Gain (r,) and bias (r,).
        readers: All weights (r, outputs) that read the norm.
    """
    right = tuple(reader.T for reader in readers)
    return Group(name=f"gains of {name}", kind="norm_gain", left=gain_and_bias, right=right, diagonal=True)


def rescaling(name: str, left: Sequence[Part], right: Sequence[Part] = ()) -> Group:
    """Describes changes of the weights that leave the loss unchanged: multiplying all weights in `left` by a number,
    and dividing all in `right` by it.

    Args:
        left: Parts of any shape.
        right: Parts of any shape; empty if the loss does not depend on the scale of `left` at all.
    """
    columns = [tuple(part.column for part in parts) for parts in (left, right)]
    return Group(name=f"scale of {name}", kind="scale", left=columns[0], right=columns[1])


Layer = tuple[Part, Part]
"""A linear layer's weight (inputs, outputs) and bias."""


def attention_layer(
    name: str, n_heads: int, widths: tuple[int, int], *, query: Layer, key: Layer | None, value: Layer, out: Layer
) -> Iterator[Identity]:
    """Yields the identities (equations for gradients) of a layer of softmax attention whose heads' outputs are
    concatenated.

    Args:
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
    """Yields equations for the gradients of a normalization layer's gain and bias, if only the given layers read its
    output.

    Args:
        gain_and_bias: The norm's parameters: gain and bias, one number per feature.
        keys: The result of `merged_keys`, if the norm's output is also used as keys.
    """
    yield norm_gain(name, gain_and_bias, (*(weight for weight, _ in layers), *keys))
    readers = tuple(Reader(bias, weight) for weight, bias in layers)
    yield RedundantBias(name=f"the bias of {name}", bias=gain_and_bias[1], readers=readers)


def merged_keys(query: Layer, n_heads: int, d_model: int) -> list[Part]:
    """Returns each head's parts of the query weight and bias, for attention that has no key weight, because it was
    merged into the query weight. The keys are then the outputs of the norm before the attention.

    The rows of these parts are the channels of the keys.
    """
    heads = [slice(head * d_model, (head + 1) * d_model) for head in range(n_heads)]
    weight, bias = query
    return [part for head in heads for part in (weight[:, head].T, bias[head].column)]


def outputs(layer: Layer, channels: slice) -> Layer:
    """Selects some of a layer's outputs: the columns of its weight and the entries of its bias that compute them."""
    weight, bias = layer
    return weight[:, channels], bias[channels]
