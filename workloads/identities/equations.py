"""The identity that attention weights of a query sum to 1, and are 0 for keys that a causal mask hides.

Axes of a weight: any leading ones, Q query, K key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnsweep.workloads.identities.identity import Computed, Error, Identity, Part, Point, largest, parameters_of


@dataclass(frozen=True, kw_only=True)
class AttentionRows(Identity):
    """The attention weights of each query sum to 1, and with a causal mask the weights of later keys are 0."""

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
    """The gradients of some or all parameters equal a closed formula.

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
    """A layer x w + b whose input contains a redundant bias, which b could replace.

    Attributes:
        bias: The layer's own bias b.
        weight: The layer's weight w, (inputs, outputs); `None` for the identity, such as a residual stream.
    """

    bias: Part
    weight: Part | None = None

    def undoes(self, at: Point) -> Tensor:
        """Computes this layer's contribution w db to the redundant bias's gradient, (inputs,)."""
        gradient = self.bias.of(at.gradients).flatten()
        return gradient if self.weight is None else self.weight.of(at.weights) @ gradient


@dataclass(frozen=True, kw_only=True)
class RedundantBias(Identity):
    """A bias that the biases b of the next layers make redundant: its gradient is the sum of w db over these layers.

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
