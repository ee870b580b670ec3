"""The width of a pack: how many lanes it computes, from its first step to its last.

On a GPU the kernels of a matrix product or a sum, and so the order in which they add, depend on the number of lanes. So
a pack keeps its width there: copies of a training, which nobody reads, take the places of those that end. A training's
bits then depend on its parameters, its seed and the width, but neither on the other trainings nor on when they end. On
a CPU they depend on no width, and lanes that end leave the pack.
"""

from torch import Tensor, arange

_NARROWEST = 64
"""A GPU computes so many lanes as fast as one."""


def width_on(device: str, n_trainings: int) -> int | None:
    """The width of a pack of so many trainings: a power of two; `None` where packs get narrower.

    Args:
        device: `cpu` or `cuda`.
        n_trainings: With which the pack begins: the column `pack_size`.
    """
    return max(_NARROWEST, 1 << (n_trainings - 1).bit_length()) if device != "cpu" else None


def filled_up(value: Tensor, size: int) -> Tensor:
    """A copy (L, ...) of `value` (A, ...), with its last lane repeated."""
    return value[arange(size, device=value.device).clamp(max=len(value) - 1)]
