"""Integrates gradient flow with strides (time steps) that adapt to its time scale. Axes: L lane, n weight."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_STRIDE = 0.5
"""The length of a stride times the relative rate at which the gradient changes."""
_MOST_STEPS = 100
_NUDGE = 1e-3
_LONGER = 3.0
"""The largest ratio of two strides in a row."""

Descent = Callable[[Tensor], tuple[Tensor, Tensor]]


def times_until(descent: Descent, rows: Tensor, held: Tensor, level: Tensor) -> NDArray[np.float64]:
    """Returns the time at which gradient flow takes each loss below a level, (L,); infinite if not within 100 strides.

    One stride is a step of Runge and Kutta's fourth-order method, over which the gradient changes by about half. So the
    gradient grows tenfold in about five strides, however long that takes.

    Args:
        descent: Returns losses (L,) and gradients (L, n) at weights (L, n).
        rows: (L, n) the weights at the start.
        held: (L,) the loss from which a fall is measured.
        level: (L,) the level to fall below, which is below `held`.
    """
    loss, gradient = descent(rows)
    nudge = _NUDGE * rows.norm(dim=1) / gradient.norm(dim=1)
    stride = _STRIDE / _rate(gradient, descent(rows - nudge[:, None] * gradient)[1], nudge)
    time, times = torch.zeros_like(loss), torch.full_like(loss, torch.inf)
    for _ in range(_MOST_STEPS):
        rows = _stride(descent, rows, gradient, stride)
        old_loss, old_gradient = loss, gradient
        loss, gradient = descent(rows)
        has_fallen = (loss < level) & times.isinf()
        times = torch.where(has_fallen, time + stride * _part(held - old_loss, held - level, held - loss), times)
        if times.isfinite().all():
            break
        time = time + stride
        next_stride = _STRIDE / _rate(old_gradient, gradient, stride)
        stride = next_stride.clamp(stride / _LONGER, stride * _LONGER)
    return times.numpy()


def _stride(descent: Descent, rows: Tensor, gradient: Tensor, stride: Tensor) -> Tensor:
    step = stride[:, None]
    second = descent(rows - step / 2 * gradient)[1]
    third = descent(rows - step / 2 * second)[1]
    fourth = descent(rows - step * third)[1]
    moved: Tensor = step / 6 * (gradient + 2 * second + 2 * third + fourth)
    return rows - moved


def _rate(before: Tensor, after: Tensor, time: Tensor) -> Tensor:
    """Returns the relative change of the gradient per unit of time along the flow, (L,)."""
    rate: Tensor = (after - before).norm(dim=1) / before.norm(dim=1) / time
    return rate


def _part(before: Tensor, at: Tensor, after: Tensor) -> Tensor:
    """Returns the fraction, in 0..1, of an integration step after which the loss has fallen by `at`, (L,).

    The falls before and after the stride are given. Between them the fall is taken to grow exponentially, or linearly
    where it was not positive before.
    """
    exponential = torch.log(at / before) / torch.log(after / before)
    part: Tensor = torch.where(before > 0, exponential, at / after)
    return part.clamp(0.0, 1.0)
