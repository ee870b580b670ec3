"""Gradients written by hand, to compare with those of autograd."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnsweep.workloads.identities.identity import Error, Identity, Point, largest


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Identity):
    """The gradients of some parameters, or of all, by a formula.

    Attributes:
        source: Paper and equations.
        gradients: Computes them, by parameter name, of a module on a batch.
    """

    name: str
    source: str
    gradients: Callable[[nn.Module, dict[str, Tensor]], dict[str, Tensor]]

    def errors(self, at: Point) -> list[Error]:
        with torch.no_grad():
            ours = self.gradients(at.module, at.batch)
        return [Error(name, largest(ours[name] - at.gradients[name]) / at.scale) for name in ours]

    def reason(self, at: Point) -> str:
        del at
        return f"the gradient is not that of {self.source}: a factor of the model or of its formula differs"
