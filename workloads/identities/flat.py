"""Directions in which the loss is exactly constant, whatever the weights: a sum of gradients that is 0.

The same sum of the weights is conserved by gradient descent, step by step, and by no rule that divides gradients by
their own size, such as Adam. Source: Boue 2025, equation 32b (key bias); derivations: docs/gradients.md.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsweep.workloads.identities.identity import Conserved, Error, Point, largest
from attnsweep.workloads.identities.parts import Part, parameters_of, stacked


@dataclass(frozen=True, kw_only=True)
class Flat(Conserved):
    """A linear function of the parameters whose value on the gradient is 0."""

    name: str

    @abstractmethod
    def sums(self, state: Mapping[str, Tensor]) -> Tensor:
        """(n,) sums: 0 of the gradients; of the weights, what gradient descent conserves."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[str, ...]:
        """The parameters that it is about."""

    @property
    def quantity(self) -> str:
        return "sum"

    def conserved(self, weights: Mapping[str, Tensor]) -> Tensor:
        return self.sums(weights)

    def moved(self, gradients: Mapping[str, Tensor]) -> Tensor:
        return torch.zeros_like(self.sums(gradients))

    def errors(self, at: Point) -> list[Error]:
        return [Error(", ".join(self.parameters), largest(self.sums(at.gradients)) / at.scale)]


@dataclass(frozen=True, kw_only=True)
class NoGradient(Flat):
    """The loss does not depend on a part.

    Attributes:
        part: For example a parameter that this variant does not use.
        because: Why not, in a few words.
    """

    part: Part
    because: str

    def sums(self, state: Mapping[str, Tensor]) -> Tensor:
        return self.part.of(state).flatten()

    @property
    def quantity(self) -> str:
        return "null"

    @property
    def parameters(self) -> tuple[str, ...]:
        return (self.part.parameter,)

    def reason(self, at: Point) -> str:
        del at
        return f"{self.name} has a gradient, although {self.because}"


@dataclass(frozen=True, kw_only=True)
class KeyBias(Flat):
    """The bias of keys: it adds the same number to all logits of a query, which a softmax over keys ignores.

    Attributes:
        key: The key bias.
        query: The query bias, if there is one: it helps to say what is wrong.
    """

    key: Part
    query: Part | None = None

    def sums(self, state: Mapping[str, Tensor]) -> Tensor:
        return self.key.of(state).flatten()

    @property
    def quantity(self) -> str:
        return "null"

    @property
    def parameters(self) -> tuple[str, ...]:
        return (self.key.parameter,)

    def reason(self, at: Point) -> str:
        if self.query is not None and largest(self.query.of(at.gradients)) < _NOTHING * at.scale:
            return (
                "the key bias has a gradient and the query bias has none: the logits are transposed (k q^t for q k^t), "
                "or the softmax runs over queries instead of keys"
            )
        return (
            "the key bias has a gradient: the mask multiplies (masked logits must become minus infinity, not 0), "
            "or the softmax does not run over keys"
        )


_NOTHING = 1e-12
"""A gradient below this share of the whole counts as none."""


@dataclass(frozen=True, kw_only=True)
class RowSums(Flat):
    """A constant added to a row changes nothing, because what follows removes the mean: the rows of the gradient sum
    to 0.

    Attributes:
        part: A matrix, or a vector as its only row. Write `Part(...).T` where it is the columns.
        because: What removes a constant: `norm` (a layer norm, from features) or `softmax` (from logits).
    """

    part: Part
    because: str = "norm"

    def sums(self, state: Mapping[str, Tensor]) -> Tensor:
        return stacked((self.part,), state).sum(1)

    @property
    def parameters(self) -> tuple[str, ...]:
        return (self.part.parameter,)

    def reason(self, at: Point) -> str:
        del at
        rows = f"the rows of {self.name}'s gradient do not sum to 0"
        if self.because == "softmax":
            return f"{rows}: the softmax runs over another axis, or is none"
        return f"{rows}: the norm does not remove the row mean, forward or backward, or something reads past the norm"


@dataclass(frozen=True, kw_only=True)
class EqualSums(Flat):
    """A constant vector may move from the rows of one table to those of another, because both are added: the gradients'
    sums over rows agree.

    Attributes:
        left, right: Matrices of equal width, such as token and position embeddings.
    """

    left: Part
    right: Part

    def sums(self, state: Mapping[str, Tensor]) -> Tensor:
        return self.left.of(state).sum(0) - self.right.of(state).sum(0)

    @property
    def parameters(self) -> tuple[str, ...]:
        return parameters_of((self.left, self.right))

    def reason(self, at: Point) -> str:
        del at
        return f"{self.name}: the gradients' sums over rows differ: the two tables are not simply added"
