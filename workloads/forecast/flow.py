"""Gradient flow by steps that grow and shrink with its time scale. Axes: L lane, n weight."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_STRIDE = 0.5
"""Of a step, by the rate at which the gradient changes."""
_MOST_STEPS = 100
_NUDGE = 1e-3
_LONGER = 3.0
"""The largest ratio of two strides in a row."""

Descent = Callable[[Tensor], tuple[Tensor, Tensor]]


def times_until(descent: Descent, rows: Tensor, held: Tensor, level: Tensor) -> NDArray[np.float64]:
    """(L,) the times at which gradient flow takes losses below a level; infinite for those that need over 100 strides.

    One stride is a step of Runge and Kutta's fourth-order method, over which the gradient changes by about half: a
    factor of ten in it costs five strides, in whatever time it is gained.

    Args:
        descent: Losses (L,) and their gradients (L, n) at some weights.
        rows: (L, n) the weights at the start.
        held: (L,) the loss of the start.
        level: (L,) below it.
    """
    loss, gradient = descent(rows)
    nudge = _NUDGE * rows.norm(dim=1) / gradient.norm(dim=1)
    stride = _STRIDE / _rate(gradient, descent(rows - nudge[:, None] * gradient)[1], nudge)
    time, found = torch.zeros_like(loss), torch.full_like(loss, torch.inf)
    for _ in range(_MOST_STEPS):
        rows = _stride(descent, rows, gradient, stride)
        before, old = loss, gradient
        loss, gradient = descent(rows)
        has_fallen = (loss < level) & found.isinf()
        found = torch.where(has_fallen, time + stride * _part(held - before, held - level, held - loss), found)
        if found.isfinite().all():
            break
        time = time + stride
        wanted = _STRIDE / _rate(old, gradient, stride)
        stride = wanted.clamp(stride / _LONGER, stride * _LONGER)
    return found.numpy()


def _stride(descent: Descent, rows: Tensor, gradient: Tensor, stride: Tensor) -> Tensor:
    step = stride[:, None]
    second = descent(rows - step / 2 * gradient)[1]
    third = descent(rows - step / 2 * second)[1]
    fourth = descent(rows - step * third)[1]
    moved: Tensor = step / 6 * (gradient + 2 * second + 2 * third + fourth)
    return rows - moved


def _rate(before: Tensor, after: Tensor, time: Tensor) -> Tensor:
    """(L,) by how much of itself the gradient changes in a unit of time."""
    rate: Tensor = (after - before).norm(dim=1) / before.norm(dim=1) / time
    return rate


def _part(before: Tensor, at: Tensor, after: Tensor) -> Tensor:
    """(L,) the part of a stride after which the loss has fallen by `at`, if what it has fallen by grows by a rate."""
    grows = torch.log(at / before) / torch.log(after / before)
    part: Tensor = torch.where(before > 0, grows, at / after)
    return part.clamp(0.0, 1.0)
