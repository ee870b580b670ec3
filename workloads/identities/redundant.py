"""Redundant biases: a bias that other biases could replace, so that its gradient follows from theirs.

Adding a vector u to the bias is undone by subtracting u w from the bias of every layer that reads it through a weight
w. So the gradient of the bias is the sum of w db over these layers. Source: docs/gradients.md. Boue 2025, section 3.1,
calls the value bias useful, but it is redundant in this sense.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsweep.workloads.identities.identity import Error, Identity, Point, largest
from attnsweep.workloads.identities.parts import Part, parameters_of


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
        name: The bias, for messages.
        bias: The redundant bias: for example that of a norm, or that of the values, which the output projection reads
            unchanged because attention weights sum to 1.
        readers: All layers that read the bias.
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
