"""The width of a pack: the number of lanes that it computes, from its first step to its last.

On a GPU, the kernels of matrix products and sums depend on the number of lanes, and with them the order of additions.
So a pack has a fixed width there: copies of a training, whose results are not read, take the places of trainings that
have ended. The bits of a training then depend on its parameters, its seed and the width, but neither on the other
trainings nor on when they end. On a CPU the bits do not depend on the number of lanes, and ended lanes are dropped.
"""

from torch import Tensor, arange

_NARROWEST = 64
"""The smallest width: a GPU computes this many lanes as fast as one."""


def width_on(device: str, n_trainings: int) -> int | None:
    """Returns how many lanes a pack always computes on this device, a power of two; `None` if that may vary.

    Args:
        device: `cpu` or `cuda`.
        n_trainings: The number of trainings with which the pack begins: the column `pack_size`.
    """
    return max(_NARROWEST, 1 << (n_trainings - 1).bit_length()) if device != "cpu" else None


def filled_up(value: Tensor, size: int) -> Tensor:
    """Extends `value` (A, ...) to (size, ...) with copies of its last lane."""
    return value[arange(size, device=value.device).clamp(max=len(value) - 1)]
