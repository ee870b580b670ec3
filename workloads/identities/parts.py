"""Names a matrix inside a module's parameters, such as the keys of one head in a projection of all heads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnsweep.workloads.errors import SpecError, did_you_mean

_TRANSPOSE, _COLUMN, _ROW = "transpose", "column", "row"
_SHAPED: Mapping[str, Callable[[Tensor], Tensor]] = {
    _TRANSPOSE: lambda value: value.mT,
    _COLUMN: lambda value: value.reshape(-1, 1),
    _ROW: lambda value: value.reshape(1, -1),
}


@dataclass(frozen=True, slots=True)
class Part:
    """A parameter, or a piece of it. It reads weights, gradients and momenta alike.

        Part("attention.in_weight")[:, 8:16].T

    Attributes:
        parameter: The parameter's name in the module of one training.
        steps: How the piece is cut out, step by step.
    """

    parameter: str
    steps: tuple[Any, ...] = ()

    def __getitem__(self, index: Any) -> "Part":
        """The piece at an index, as a tensor's."""
        return replace(self, steps=(*self.steps, index))

    @property
    def T(self) -> "Part":  # noqa: N802  # As a tensor's.
        """The transposed matrix."""
        return replace(self, steps=(*self.steps, _TRANSPOSE))

    @property
    def column(self) -> "Part":
        """All entries as a matrix of one column."""
        return replace(self, steps=(*self.steps, _COLUMN))

    @property
    def row(self) -> "Part":
        """All entries as a matrix of one row."""
        return replace(self, steps=(*self.steps, _ROW))

    def of(self, state: Mapping[str, Tensor]) -> Tensor:
        """The piece of one training's weights, or of what is laid out like them.

        Raises:
            SpecError: If there is no such parameter.
        """
        if self.parameter not in state:
            raise SpecError(
                "identities",
                given=f'Part("{self.parameter}")',
                expected=f"a parameter of the module: {', '.join(state)}",
                fix=did_you_mean(self.parameter, state, otherwise="correct its name"),
            )
        value = state[self.parameter]
        for step in self.steps:
            value = _SHAPED[step](value) if isinstance(step, str) else value[step]
        return value


def stacked(parts: Sequence[Part], state: Mapping[str, Tensor]) -> Tensor:
    """The pieces one below the other, (rows, columns); a vector is one row."""
    return torch.cat([torch.atleast_2d(part.of(state)) for part in parts])


def parameters_of(parts: Sequence[Part]) -> tuple[str, ...]:
    """The names of the parameters that the pieces belong to, each once."""
    return tuple(dict.fromkeys(part.parameter for part in parts))
