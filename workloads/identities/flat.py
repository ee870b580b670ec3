"""Flat directions: the loss is exactly constant along them at all weights, so that a sum of gradients is 0.

Steps of gradient descent conserve the same sum of the weights; steps that divide gradients by their own size, such as
those of Adam, do not. Source: Boue 2025, equation 32b (key bias). docs/gradients.md has the derivations.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsweep.workloads.identities.identity import Conserved, Error, Part, Point, largest, parameters_of, stacked


@dataclass(frozen=True, kw_only=True)
class Flat(Conserved):
    """A linear function that is 0 for gradients, so that gradient descent conserves its value for the weights."""

    name: str

    @abstractmethod
    def sums(self, state: Mapping[str, Tensor]) -> Tensor:
        """Computes the linear function, (n,), of weights or of gradients."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters on which the function depends."""

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
    """The loss does not depend on a part of the parameters, so the part's gradient is 0."""

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
    """The gradient of a key bias is 0: the bias adds the same number to all logits of a query, which softmax ignores.

    Attributes:
        query: The query bias, if there is one: it helps to name the cause of a failure.
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
"""A gradient below this share of the whole gradient counts as 0."""


@dataclass(frozen=True, kw_only=True)
class RowSums(Flat):
    """The rows of a gradient sum to 0, because adding a constant to a row of the parameter does not change the loss.

    Attributes:
        part: The matrix, or a vector, which counts as one row. Write `Part(...).T` if the columns sum to 0.
        because: The operation that removes the constant: `norm` (a layer norm) or `softmax` (of logits).
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
            return f"{rows}: the softmax runs over another axis, or there is no softmax"
        return f"{rows}: the norm does not remove the row mean, forward or backward, or something reads past the norm"


@dataclass(frozen=True, kw_only=True)
class EqualSums(Flat):
    """If the rows of two tables are added in the model, the gradients of both tables have equal sums over rows.

    Moving a constant vector from all rows of one table to all rows of the other does not change the loss.
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
