"""The identity that autograd's gradients equal gradients in closed form."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnsweep.workloads.identities.identity import Error, Identity, Point, largest


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Identity):
    """The gradients of some or all parameters equal a closed formula.

    Attributes:
        name: The formula, for messages.
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
