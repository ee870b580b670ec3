"""Parameters as one row per training, so that one operation updates all. Renames, selects and converts tensors by name.

In bfloat16 trainings, loss and gradient are computed in bfloat16. Parameters and running averages are stored in
bfloat16, or in float32 with `float32_state`. First-order updates are computed in float32 and rounded once. Probes use
float32. Axes: L training, n entry of the row.
"""

import math
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from attnsweep.workloads.engine.optimizers import State

_PLACES = 16
"""Each parameter starts at a multiple of this many entries of the row, and the row's length is one: kernels process a
remainder beyond full vectors in another way, which rounds differently."""
ROWS = "rows"
"""The name under which optimizers get the parameters."""


class Layout:
    """Where each parameter lies in a training's row."""

    def __init__(self, parameters: State) -> None:
        self._shapes = {name: tuple(value.shape[1:]) for name, value in parameters.items()}
        self._sizes = {name: math.prod(shape) for name, shape in self._shapes.items()}
        self._room = [-(-size // _PLACES) * _PLACES for size in self._sizes.values()]

    def rows(self, parameters: State) -> Tensor:
        """Copies parameters, (L, ...) by name, into rows, with zeros in the gaps."""
        parts = []
        for (name, size), room in zip(self._sizes.items(), self._room, strict=True):
            part = parameters[name].reshape(len(parameters[name]), size)
            parts += [part, part.new_zeros(len(part), room - size)] if room > size else [part]
        return torch.cat(parts, 1)

    def views(self, rows_Ln: Tensor) -> State:
        """The parameters by name, (L, ...), as views, so gradients flow back."""
        parts = zip(self._shapes.items(), torch.split(rows_Ln, self._room, dim=1), strict=True)
        return {name: _shaped(part, self._sizes[name], shape) for (name, shape), part in parts}


def _shaped(part: Tensor, size: int, shape: tuple[int, ...]) -> Tensor:
    exact = part if part.shape[1] == size else part[:, :size]
    return exact.view(len(exact), *shape) if len(shape) != 1 else exact


V = TypeVar("V")


def prefixed(prefix: str, values: Mapping[str, V]) -> dict[str, V]:
    """Renames `<name>` to `<prefix>/<name>`."""
    return {f"{prefix}/{name}": value for name, value in values.items()}


def under(prefix: str, values: Mapping[str, V]) -> dict[str, V]:
    """The inverse of `prefixed`; leaves out other names."""
    start = f"{prefix}/"
    return {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}


def selected(state: State, lanes: Tensor) -> State:
    return {name: value[lanes] for name, value in state.items()}


def measurable(state: State) -> State:
    """bfloat16 tensors as float32, which is exact, for measurements and checkpoints."""
    return {name: value.float() if value.dtype == torch.bfloat16 else value for name, value in state.items()}


def in_type(state: State, dtype: torch.dtype) -> State:
    """Floating-point tensors in `dtype`, others as they are."""
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in state.items()}
