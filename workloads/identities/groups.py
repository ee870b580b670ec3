"""Gauge groups: two matrices of which the loss sees only the product.

The loss depends on left and right through left right^t alone, so left S and right S^-t are as good for every invertible
S (r x r; r: their common columns). At any weights, left^t d(left) = (right^t d(right))^t. Hence under gradient flow the
charge left^t left - right^t right is constant, and one step of gradient descent with learning rate eta moves it by
exactly eta^2 (d(left)^t d(left) - d(right)^t d(right)). Source: docs/gradients.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnsweep.workloads.identities.identity import Conserved, Error, Point, largest
from attnsweep.workloads.identities.parts import Part, parameters_of, stacked

Kind = Literal["qk", "vo", "neurons", "low_rank", "norm_gain", "scale"]

_REASONS: Mapping[Kind, str] = {
    "qk": "the logits do not depend on q k^t alone: a norm or an activation acts on one, or a weight is transposed",
    "vo": "the output is not a function of the product of value and output weights: something acts between them",
    "neurons": "a neuron's output does not scale with its input: the activation is no ReLU, or a weight is transposed",
    "low_rank": "the layer is not a function of the product of the two low-rank factors, forward or backward",
    "norm_gain": "what reads the norm does not read gain and bias through these weights alone",
    "scale": "the loss does not see the product of these parameters alone",
}


@dataclass(frozen=True, kw_only=True)
class Group(Conserved):
    """A gauge group. The functions of this module build the usual ones.

    Attributes:
        kind: What it is a group of. Charges are named after it.
        left, right: The pieces of either side, one below the other; they have r columns in common. A bias row belongs
            to its weight's side. With nothing on the right, the loss does not see the scale of `left`.
        diagonal: Whether S must be a diagonal matrix of positive numbers, because a nonlinearity acts on each column.
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
        """(r, r) left^t left - right^t right, or (r,) its diagonal; of one training.

        Of the weights, what gradient flow conserves; of the gradients, times eta^2, by how much one step of plain
        gradient descent moves that.
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
        """one^t other, or its diagonal."""
        return (one * other).sum(0) if self.diagonal else one.mT @ other


def queries_and_keys(name: str, query: Sequence[Part], key: Sequence[Part]) -> Group:
    """One head's queries and keys.

    Args:
        name: Such as `block 0, head 1`.
        query, key: Their weight (inputs, r) and, if any, bias (r,).
    """
    return Group(name=f"queries and keys of {name}", kind="qk", left=query, right=key)


def values_and_output(name: str, value: Sequence[Part], output: Part) -> Group:
    """One head's values and its rows of the output projection.

    Args:
        name: Such as `block 0, head 1`.
        value: Their weight (inputs, r) and, if any, bias (r,).
        output: (r, outputs).
    """
    return Group(name=f"values and output of {name}", kind="vo", left=value, right=(output.T,))


def relu_neurons(name: str, first: Sequence[Part], second: Part) -> Group:
    """The neurons between two layers, if the activation is a ReLU. It does not hold for GELU.

    Args:
        name: Such as `block 0`.
        first: The first layer's weight (inputs, r) and, if any, bias (r,).
        second: The second layer's weight (r, outputs).
    """
    return Group(name=f"neurons of {name}", kind="neurons", left=first, right=(second.T,), diagonal=True)


def low_rank(name: str, down: Part, up: Part) -> Group:
    """The factors of a low-rank update x down up.

    Args:
        name: Of the layer.
        down: (inputs, r).
        up: (r, outputs).
    """
    return Group(name=f"low-rank factors of {name}", kind="low_rank", left=(down,), right=(up.T,))


def norm_gain(name: str, gain_and_bias: Sequence[Part], readers: Sequence[Part]) -> Group:
    """A norm's gain and bias, feature by feature, and the weights that read them.

    Args:
        name: Of the norm.
        gain_and_bias: (r,) each.
        readers: All weights that read the norm, (r, outputs).
    """
    right = tuple(reader.T for reader in readers)
    return Group(name=f"gains of {name}", kind="norm_gain", left=gain_and_bias, right=right, diagonal=True)


def rescaling(name: str, left: Sequence[Part], right: Sequence[Part] = ()) -> Group:
    """All of `left` may be multiplied by a number if all of `right` are divided by it.

    Args:
        name: Of what they are parts of.
        left: Of any shape.
        right: Of any shape; none if the loss does not see the scale of `left` at all.
    """
    columns = [tuple(part.column for part in parts) for parts in (left, right)]
    return Group(name=f"scale of {name}", kind="scale", left=columns[0], right=columns[1])
