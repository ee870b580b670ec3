"""The base classes of identities, which are equations for gradients. Also the weights and parts of parameters on which
identities are verified."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnsweep.workloads.errors import SpecError, did_you_mean

_TRANSPOSE, _COLUMN, _ROW = "transpose", "column", "row"
_SHAPED: Mapping[str, Callable[[Tensor], Tensor]] = {
    _TRANSPOSE: lambda value: value.mT,
    _COLUMN: lambda value: value.reshape(-1, 1),
    _ROW: lambda value: value.reshape(1, -1),
}


@dataclass(frozen=True, slots=True)
class Part:
    """A parameter or a piece of one, such as `Part("attention.in_weight")[:, 8:16].T`.

    A part can select its piece from weights, gradients or momenta.

    Attributes:
        parameter: The parameter's name in the module of one training.
        steps: The indices and reshapes that cut out the piece, in order.
    """

    parameter: str
    steps: tuple[Any, ...] = ()

    def __getitem__(self, index: Any) -> "Part":
        """Returns the part of the parameter that an index or slice selects, as in a tensor. On a part of a parameter,
        it selects within that part."""
        return replace(self, steps=(*self.steps, index))

    @property
    def T(self) -> "Part":  # noqa: N802  # Named like the attribute of tensors.
        """The transpose, like `T` of a tensor, of the parameter or of the part of it that indices have selected."""
        return replace(self, steps=(*self.steps, _TRANSPOSE))

    @property
    def column(self) -> "Part":
        """Selects all entries of this parameter, or of this piece of a parameter, as a matrix with one column."""
        return replace(self, steps=(*self.steps, _COLUMN))

    @property
    def row(self) -> "Part":
        """Selects all entries of this parameter, or of this piece of a parameter, as a matrix with one row."""
        return replace(self, steps=(*self.steps, _ROW))

    def of(self, state: Mapping[str, Tensor]) -> Tensor:
        """Selects this parameter, or this piece of a parameter, from tensors given by name: the weights of one
        training, or tensors of the same names and shapes, such as gradients.

        Raises:
            SpecError: If there is no parameter of this name.
        """
        if self.parameter not in state:
            parameters = ", ".join(state)
            raise SpecError(
                "identities",
                given=f'Part("{self.parameter}")',
                expected=f"the name of a parameter of the module: {parameters}",
                fix=did_you_mean(self.parameter, state, otherwise="correct the parameter's name"),
            )
        value = state[self.parameter]
        for step in self.steps:
            value = _SHAPED[step](value) if isinstance(step, str) else value[step]
        return value


def stacked(parts: Sequence[Part], state: Mapping[str, Tensor]) -> Tensor:
    """Stacks parts of parameters one below the other, as a matrix. A vector counts as one row."""
    return torch.cat([torch.atleast_2d(part.of(state)) for part in parts])


def parameters_of(parts: Sequence[Part]) -> tuple[str, ...]:
    """Returns the names of the parameters of which the given parts are pieces, each name once. A part may also be a
    whole parameter."""
    return tuple(dict.fromkeys(part.parameter for part in parts))


@dataclass(frozen=True, slots=True)
class Point:
    """A training's weights and gradients, at which identities (equations for gradients) are verified.

    Attributes:
        batch: The data of the loss of this training; empty where the loss is exact.
        scale: The size of the gradient, to which errors are relative.
    """

    module: nn.Module
    batch: dict[str, Tensor]
    weights: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]
    scale: float


@dataclass(frozen=True, slots=True)
class Error:
    """By how much an identity (equation for gradients) is violated at given weights."""

    parameter: str
    error: float


class Identity(ABC):
    """An equation about the gradients of a module's parameters. It holds exactly, at any weights and on any data,
    unless the module is implemented wrongly.

    Attributes:
        name: What the identity is about, such as `keys of block 0, head 1`.
    """

    name: str

    @abstractmethod
    def errors(self, at: Point) -> list[Error]:
        """Computes by how much this equation is violated at a training's weights and gradients. Returns a list with one
        error, or with several, such as one per parameter."""

    @abstractmethod
    def reason(self, at: Point) -> str:
        """Explains in one line what is wrong with a module whose gradients violate this equation at given weights."""


class Conserved(Identity):
    """An equation for gradients from which it follows that gradient flow keeps a quantity constant, on any data."""

    @property
    @abstractmethod
    def quantity(self) -> str:
        """The name of the conserved quantity, such as `charge_qk`. The names of the metrics about it contain this
        name."""

    @abstractmethod
    def conserved(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Computes the conserved quantity of one training from its weights. The engine calls this method under
        `torch.vmap`."""

    @abstractmethod
    def moved(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """Computes from gradients how much the quantity that gradient flow conserves still changes in one finite step
        of gradient descent with learning rate 1.

        With another learning rate, the change is this value times the learning rate squared.
        """


Computed = Callable[[nn.Module, dict[str, Tensor]], Tensor]
"""The signature of a function that computes a tensor from a module and a batch."""


def largest(values: Tensor) -> float:
    """Returns the largest absolute value of a tensor; 0 for an empty tensor, NaN if a value is NaN."""
    return values.detach().abs().max().item() if values.numel() else 0.0
