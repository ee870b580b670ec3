"""The base classes of identities, and the point at which one is verified."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Point:
    """One training at given weights, with the gradients there, at which identities are verified.

    Attributes:
        module: The plain module of one training, with these weights.
        batch: The data of the loss, without a lane axis; empty where the loss is exact.
        weights: The parameters, by name.
        gradients: The gradients of the loss, by the same names.
        scale: The size of the gradient, to which errors are relative.
    """

    module: nn.Module
    batch: dict[str, Tensor]
    weights: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]
    scale: float


@dataclass(frozen=True, slots=True)
class Error:
    """How far an identity is violated at a point.

    Attributes:
        parameter: The name of the parameter, or of several.
        error: The largest relative error; NaN fails.
    """

    parameter: str
    error: float


class Identity(ABC):
    """An equation about gradients that holds exactly, at any weights and on any data, if the module is correct.

    Attributes:
        name: The subject of the identity, such as `keys of block 0, head 1`.
    """

    name: str

    @abstractmethod
    def errors(self, at: Point) -> list[Error]:
        """Computes the identity's errors at a point: a single one, or one per parameter."""

    @abstractmethod
    def reason(self, at: Point) -> str:
        """Explains in one line what a violation at this point says about the module."""


class Conserved(Identity):
    """An identity because of which gradient flow conserves a quantity, on any data."""

    @property
    @abstractmethod
    def quantity(self) -> str:
        """The name of the conserved quantity, such as `charge_qk`. The metrics in `curves` contain this name."""

    @abstractmethod
    def conserved(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Computes the conserved quantity of one training. The engine calls this method under `torch.vmap`."""

    @abstractmethod
    def moved(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """Computes the exact change of the quantity in a step of gradient descent, divided by the learning rate
        squared.
        """


Computed = Callable[[nn.Module, dict[str, Tensor]], Tensor]
"""A function that computes a tensor from a module and a batch."""


def largest(values: Tensor) -> float:
    """Returns the largest absolute value; 0 for an empty tensor, NaN if a value is NaN."""
    return values.detach().abs().max().item() if values.numel() else 0.0
