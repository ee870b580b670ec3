"""Slopes of a loss by fourth-order central differences, with the step chosen by comparing neighbouring steps.

    slope(h) = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h        error h^4 f'''''/30, and rounding about |f| u / h

The step is halved until two neighbouring slopes agree. This never looks at the gradient under test. Where a kink, as
ReLUs have, lies within the step, neighbouring slopes differ, and smaller steps get past it. A kink at the very point
leaves an error of half its jump at every step, so slopes agree on a wrong value. It is seen in

    bend(h) = (f(h) + f(-h) - 2 f(0)) / h                          h f'' where f is smooth, the jump at a kink

because 2 bend(h/2) - bend(h) is then the jump, and vanishes like h^3 where f is smooth.
"""

from collections.abc import Callable
from dataclasses import dataclass

_LARGEST, _SMALLEST = 2.0**-7, 2.0**-24
_AGREE = 1e-10
"""Steps are halved until two slopes agree to this, relative to the gradient's size."""
_UNIT_ROUNDOFF = 2.0**-53
_NOISE = 64.0
"""How many unit roundoffs of the loss its rounding may amount to."""


@dataclass(frozen=True, slots=True)
class Slope:
    """The slope of a loss along a direction.

    Attributes:
        value: At the step that seems best.
        gap: An estimate of its error, from twice the step: by how much the slopes differ, or half a kink's jump.
        rounding: How much of the error rounding explains at this step.
    """

    value: float
    gap: float
    rounding: float


def slope(loss: Callable[[float], float], length: float, scale: float) -> Slope:
    """The derivative of a loss at 0.

    Args:
        loss: The loss at a distance from the point.
        length: A distance over which the loss may change; steps are shares of it.
        scale: The size of the gradient.
    """
    known: dict[float, float] = {}

    def at(distance: float) -> float:
        if distance not in known:
            known[distance] = loss(distance)
        return known[distance]

    def by(step: float) -> float:
        return (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step)

    def bend(step: float) -> float:
        return (at(step) + at(-step) - 2.0 * at(0.0)) / step

    step, best = _LARGEST * length, Slope(float("nan"), float("inf"), 0.0)
    wide = by(step)
    while step > _SMALLEST * length and best.gap > _AGREE * scale:
        step /= 2.0
        narrow = by(step)
        gap = max(abs(narrow - wide), abs(2.0 * bend(step) - bend(2.0 * step)) / 2.0)
        if gap < best.gap:
            best = Slope(narrow, gap, _NOISE * _UNIT_ROUNDOFF * abs(at(step)) / step)
        wide = narrow
    return best
