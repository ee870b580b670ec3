"""A bias that other biases could replace, so that its gradient follows from theirs.

A vector u added to the bias is undone by subtracting u w from the bias of each layer that reads it through a weight w.
So the bias's gradient is the sum of w db over these layers. Source: docs/gradients.md; Boue 2025, section 3.1, calls
the value bias useful, but it is of this kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsweep.workloads.identities.identity import Error, Identity, Point, largest
from attnsweep.workloads.identities.parts import Part, parameters_of


@dataclass(frozen=True, slots=True)
class Reader:
    """A layer x w + b that reads a bias.

    Attributes:
        bias: Its own bias b.
        weight: w, (inputs, outputs); `None` for the identity, such as a residual stream.
    """

    bias: Part
    weight: Part | None = None

    def undoes(self, at: Point) -> Tensor:
        """w db, per input."""
        gradient = self.bias.of(at.gradients).flatten()
        return gradient if self.weight is None else self.weight.of(at.weights) @ gradient


@dataclass(frozen=True, kw_only=True)
class RedundantBias(Identity):
    """The gradient of `bias` is the sum of w db over the layers that read it.

    Attributes:
        bias: For example the values' bias, read by the output projection because attention weights sum to 1; or a
            norm's bias.
        readers: All layers that read it.
    """

    name: str
    bias: Part
    readers: Sequence[Reader]

    def errors(self, at: Point) -> list[Error]:
        follows = torch.stack([reader.undoes(at) for reader in self.readers]).sum(0)
        weights = [reader.weight.of(at.weights) for reader in self.readers if reader.weight is not None]
        size = 1.0 + sum(weight.norm().item() for weight in weights)
        names = ", ".join(parameters_of([self.bias, *(reader.bias for reader in self.readers)]))
        return [Error(names, largest(self.bias.of(at.gradients).flatten() - follows) / (at.scale * size))]

    def reason(self, at: Point) -> str:
        del at
        return (
            f"{self.name}: its gradient does not follow from the biases that read it: a transposed weight, "
            "attention weights that do not sum to 1, or another layer that reads it"
        )
