"""Equations that the gradients of a module satisfy exactly, because of flat directions of the loss, redundant biases or
closed formulas.

Along a flat direction the loss is exactly constant at all weights, so a linear function of the gradients is 0. Steps of
gradient descent conserve the same function of the weights; steps that divide gradients by their own size, such as those
of Adam, do not. Source: Boue 2025, equation 32b (key bias).

A redundant bias could be replaced by the biases of other layers: adding a vector u to the bias is undone by subtracting
u w from the bias of every layer that reads it through a weight w. So the gradient of the bias is the sum of w db over
these layers, where db is the gradient of a layer's bias. Boue 2025, section 3.1, calls the value bias useful, but it is
redundant in this sense. docs/gradients.md has the derivations.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnsweep.workloads.identities.identity import (
    Computed,
    Conserved,
    Error,
    Identity,
    Part,
    Point,
    largest,
    parameters_of,
    stacked,
)


@dataclass(frozen=True, kw_only=True)
class Flat(Conserved):
    """A linear function of the weights that gradient descent leaves unchanged. Applied to the gradients instead of the
    weights, the function is 0.
    """

    name: str

    @abstractmethod
    def sums(self, state: Mapping[str, Tensor]) -> Tensor:
        """Computes from given weights the quantity, linear in them, that gradient descent leaves unchanged. If it is
        computed from gradients instead, it is 0."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that enter the linear function which `sums` computes. Gradient descent leaves the
        value of this function unchanged.
        """

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
    """An identity: the gradient of a part of the parameters is 0, because the loss does not depend on that part."""

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
    """An identity: the gradient of a key bias is 0.

    The bias adds the same number to all logits of a query, and softmax ignores it.

    Attributes:
        query: The query bias, if there is one: it helps to name the cause if the gradient is not 0.
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
"""A gradient counts as 0 if it is below this share of the whole gradient."""


@dataclass(frozen=True, kw_only=True)
class RowSums(Flat):
    """An identity: each row of a gradient sums to 0, because adding a constant to a row of the parameter does not
    change the loss.

    Attributes:
        part: A matrix, or a vector, which counts as one row. Write `Part(...).T` if the columns sum to 0.
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
    """An equation for two tables whose embeddings are always added, such as those of tokens and of positions: summed
    over rows, the gradients of both tables are equal.

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


@dataclass(frozen=True, kw_only=True)
class AttentionRows(Identity):
    """Two equations about attention weights: the weights of each query sum to 1, and under a causal mask the weights of
    later keys are 0."""

    name: str
    weights: Computed
    is_causal: bool = False

    def errors(self, at: Point) -> list[Error]:
        weights = self._weights(at)
        errors = [Error(f"{self.name}: sum", largest(weights.sum(-1) - 1.0))]
        if self.is_causal:
            errors.append(Error(f"{self.name}: later keys", largest(weights.triu(1))))
        return errors

    def reason(self, at: Point) -> str:
        weights = self._weights(at)
        if self.is_causal and largest(weights.triu(1)) > 0.0:
            return f"{self.name}: queries see later keys: the mask multiplies, is transposed, or is missing"
        if largest(weights.sum(-2) - 1.0) < torch.finfo(weights.dtype).eps * weights.shape[-2]:
            return f"{self.name}: the weights of a key sum to 1, not those of a query: the softmax runs over queries"
        return f"{self.name}: the weights of a query do not sum to 1: the softmax does not run over the keys alone"

    def _weights(self, at: Point) -> Tensor:
        with torch.no_grad():
            return self.weights(at.module, at.batch)


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Identity):
    """An identity: the gradients of some or all parameters are those of a closed formula.

    Attributes:
        source: The paper and equations of the formula.
        gradients: Computes the gradients of a module on a batch, by parameter name.
    """

    name: str
    source: str
    gradients: Callable[[nn.Module, dict[str, Tensor]], dict[str, Tensor]]

    def errors(self, at: Point) -> list[Error]:
        with torch.no_grad():
            formula_gradients = self.gradients(at.module, at.batch)
        return [
            Error(name, largest(formula_gradients[name] - at.gradients[name]) / at.scale) for name in formula_gradients
        ]

    def reason(self, at: Point) -> str:
        del at
        return f"the gradient is not that of {self.source}: a factor of the model or of its formula differs"


@dataclass(frozen=True, slots=True)
class Reader:
    """A layer after a redundant bias: an earlier layer's bias is part of this layer's input, but this layer's own bias
    could replace it.

    The layer computes x w + b from its input x.

    Attributes:
        bias: The layer's own bias b.
        weight: The layer's weight w, (inputs, outputs); `None` for the identity, such as a residual stream.
    """

    bias: Part
    weight: Part | None = None

    def undoes(self, at: Point) -> Tensor:
        """Computes what this layer contributes to the gradient of an earlier layer's bias, which is part of this
        layer's input: this layer's weight times the gradient of this layer's own bias."""
        gradient = self.bias.of(at.gradients).flatten()
        return gradient if self.weight is None else self.weight.of(at.weights) @ gradient


@dataclass(frozen=True, kw_only=True)
class RedundantBias(Identity):
    """A bias that the biases of the following layers could replace. So its gradient follows from the gradients of those
    biases.

    Attributes:
        bias: The redundant bias: for example that of a norm, or that of the values, which the output projection reads
            unchanged because attention weights sum to 1.
    """

    name: str
    bias: Part
    readers: Sequence[Reader]

    def errors(self, at: Point) -> list[Error]:
        implied = torch.stack([reader.undoes(at) for reader in self.readers]).sum(0)
        weights = [reader.weight.of(at.weights) for reader in self.readers if reader.weight is not None]
        size = 1.0 + sum(weight.norm().item() for weight in weights)
        names = ", ".join(parameters_of([self.bias, *(reader.bias for reader in self.readers)]))
        return [Error(names, largest(self.bias.of(at.gradients).flatten() - implied) / (at.scale * size))]

    def reason(self, at: Point) -> str:
        del at
        return (
            f"{self.name}: its gradient does not follow from the biases of the layers that read it: a transposed "
            "weight, attention weights that do not sum to 1, or another layer that reads it"
        )
