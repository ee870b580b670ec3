"""Estimates the slope of a loss by fourth-order central differences, with an automatically chosen step h.

    slope(h) = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h        error h^4 f'''''/30, and rounding about |f| u / h

The step is halved until the slopes of two successive steps agree, which does not use the gradient under test. If a kink
of the loss, such as that of a ReLU, lies within the step, these slopes differ, and smaller steps avoid it. A kink at
the very point causes an error of half its jump at every step, so that slopes agree on a wrong value. It is detected by

    bend(h) = (f(h) + f(-h) - 2 f(0)) / h                          h f'' where f is smooth, the jump at a kink

because 2 bend(h/2) - bend(h) is the jump at a kink, and vanishes like h^3 where f is smooth.
"""

from collections.abc import Callable
from dataclasses import dataclass

_LARGEST, _SMALLEST = 2.0**-7, 2.0**-24
_AGREE = 1e-10
"""Steps are halved until two slopes agree to this accuracy, relative to the gradient's size."""
_UNIT_ROUNDOFF = 2.0**-53
_NOISE = 64.0
"""The assumed rounding error of the loss, in unit roundoffs of its value."""


@dataclass(frozen=True, slots=True)
class Slope:
    """The slope of a loss along a direction, estimated from differences of losses.

    Attributes:
        value: The slope at the best step, the one with the smallest `gap`.
        gap: An estimate of the error: the difference from the slope at twice the step, or half a kink's jump.
        rounding: The error that rounding can explain at this step.
    """

    value: float
    gap: float
    rounding: float


def slope(loss: Callable[[float], float], length: float, scale: float) -> Slope:
    """Estimates the derivative at 0 of a loss along a line, from differences.

    Args:
        loss: The loss as a function of the distance from the point.
        length: A distance over which the loss may change. Steps are fractions of it.
        scale: The size of the gradient, to which the accuracy is relative.
    """
    losses: dict[float, float] = {}

    def at(distance: float) -> float:
        if distance not in losses:
            losses[distance] = loss(distance)
        return losses[distance]

    def central(step: float) -> float:
        return (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step)

    def bend(step: float) -> float:
        return (at(step) + at(-step) - 2.0 * at(0.0)) / step

    step, best = _LARGEST * length, Slope(float("nan"), float("inf"), 0.0)
    wide = central(step)
    while step > _SMALLEST * length and best.gap > _AGREE * scale:
        step /= 2.0
        narrow = central(step)
        gap = max(abs(narrow - wide), abs(2.0 * bend(step) - bend(2.0 * step)) / 2.0)
        if gap < best.gap:
            best = Slope(narrow, gap, _NOISE * _UNIT_ROUNDOFF * abs(at(step)) / step)
        wide = narrow
    return best
