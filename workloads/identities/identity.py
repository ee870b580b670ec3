"""What all identities have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Point:
    """One training at some weights, where an identity is verified.

    Attributes:
        module: The plain module of one training, with these weights.
        batch: The data of the loss, without a lane axis; empty where the loss is exact.
        weights: The parameters, by name.
        gradients: The gradients of the loss, by the same names.
        scale: The size of a gradient here: errors are relative to it.
    """

    module: nn.Module
    batch: dict[str, Tensor]
    weights: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]
    scale: float


@dataclass(frozen=True, slots=True)
class Error:
    """By how much an identity misses at a point.

    Attributes:
        parameter: What it is about: a parameter's name, or several.
        error: The largest relative error; NaN fails.
    """

    parameter: str
    error: float


class Identity(ABC):
    """An equation that holds exactly, at any weights and on any data, if the module computes what it should.

    Attributes:
        name: What it is about, such as `keys of block 0, head 1`.
    """

    name: str

    @abstractmethod
    def errors(self, at: Point) -> list[Error]:
        """The errors at a point: one, or one per parameter."""

    @abstractmethod
    def reason(self, at: Point) -> str:
        """What the failure at this point says about the module, in one line."""


class Conserved(Identity):
    """An identity from which a conserved quantity follows: constant under gradient flow, whatever the data."""

    @property
    @abstractmethod
    def quantity(self) -> str:
        """What is conserved, such as `charge_qk`: it names the metrics in `curves`."""

    @abstractmethod
    def conserved(self, weights: Mapping[str, Tensor]) -> Tensor:
        """The quantity, of one training; the engine vectorizes it over lanes (`torch.vmap`)."""

    @abstractmethod
    def moved(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """By how much one step of plain gradient descent moves it, exactly, divided by the squared learning rate."""


Computed = Callable[[nn.Module, dict[str, Tensor]], Tensor]
"""A tensor computed from a module with its weights and a batch."""


def largest(values: Tensor) -> float:
    """The largest absolute value; 0 of nothing, NaN if any is NaN."""
    return values.detach().abs().max().item() if values.numel() else 0.0
