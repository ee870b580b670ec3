"""Marks that figures share: estimates with their intervals, as points and as bars."""

from typing import Any, Literal, TypeAlias

from matplotlib.axes import Axes

Interval: TypeAlias = tuple[float, float, float]
"""An estimate, and the bounds of its interval."""


def draw_interval(panel: Axes, at: float, interval: Interval, along: Literal["x", "y"] = "y", **look: Any) -> None:
    """Draws a point with its interval.

    Args:
        panel: The axes to draw into.
        at: The place on the other axis.
        interval: The estimate with its bounds.
        along: The axis of the estimate.
        look: Further arguments of `Axes.errorbar`.
    """
    x, y = (interval[0], at) if along == "x" else (at, interval[0])
    panel.errorbar(x, y, **look | {f"{along}err": reach(interval)})


def draw_bar(panel: Axes, row: float, interval: Interval, height: float, colour: str, label: str = "") -> None:
    """Draws a horizontal bar as long as the estimate, with its interval."""
    panel.barh(row, interval[0], height=height, color=colour, alpha=0.85, linewidth=0, label=label)
    draw_interval(panel, row, interval, "x", fmt="none", ecolor="black", elinewidth=1)


def reach(interval: Interval) -> list[list[float]]:
    """The distances of the bounds from the estimate, as `Axes.errorbar` takes them; clipped so that none is
    negative."""
    estimate, low, high = interval
    return [[max(estimate - low, 0.0)], [max(high - estimate, 0.0)]]
