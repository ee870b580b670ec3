"""The two kinds of figures: curves with bands, and heat maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from attnsweep.orchestrator.analysis.figures import group_colour, house_style, legend_below

_WIDTH, _HEIGHT = 3.2, 2.5
"""The size of a panel in inches."""
_ENTRY, _CHARACTER, _LINE = 0.5, 0.06, 0.2
"""The legend in inches: an entry's sample of the curve, a character of its text, and the height of a row."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Curves of one label have one colour in all panels, and one entry in the legend.

    Attributes:
        low, high: The ends of a band.
        style: Arguments of `Axes.plot`, such as `linestyle`.
    """

    label: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    style: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """`heights`: of dashed lines, by the text beside them; `axes`: arguments of `Axes.set`, such as `yscale`."""

    curves: Sequence[Curve]
    heights: Mapping[str, float] = field(default_factory=dict)
    axes: Mapping[str, Any] = field(default_factory=dict)


@house_style()
def draw_curves(rows: Sequence[Sequence[Panel]]) -> Figure:
    """Panels of a row share the vertical axis, all panels the legend below."""
    columns = max(map(len, rows))
    labels = {curve.label for row in rows for panel in row for curve in panel.curves}
    by_width = int(_WIDTH * columns / (_ENTRY + _CHARACTER * max(map(len, labels))))
    legend_rows = -(-len(labels) // max(by_width, 1))
    figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * len(rows) + _LINE * (1 + legend_rows)))
    places = figure.subplots(len(rows), columns, sharey="row", squeeze=False)
    handles: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    for row, row_places in zip(rows, places, strict=True):
        for panel, place in zip(row, row_places, strict=False):
            for curve in panel.curves:
                colour = group_colour(numbers.setdefault(curve.label, len(numbers)))
                line, *_ = place.plot(curve.x, curve.y, **{"color": colour, "linewidth": 1.2, **curve.style})
                handles.setdefault(curve.label, line)
                if curve.low is not None and curve.high is not None:
                    place.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
            for text, height in panel.heights.items():
                place.axhline(height, color="0.55", linewidth=0.8, linestyle=(0, (2, 2)))
                place.annotate(text, (0.01, height), xycoords=("axes fraction", "data"), va="bottom")
            place.grid(axis="y")
            place.set(**panel.axes)
    legend_below(figure, handles, columns=max(by_width, 1))
    return figure


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatMap:
    """`values`: finite, (rows, columns); `marks`: cells with a dot, as (row, column); `axes`: see `Panel`."""

    values: ArrayLike
    marks: Sequence[tuple[float, float]] = ()
    axes: Mapping[str, Any] = field(default_factory=dict)


@house_style()
def draw_heat_maps(rows: Sequence[Sequence[HeatMap]], *, share_scale: bool = True) -> Figure:
    """Red above 0 and blue below, by one scale or each map by its own."""
    columns = max(map(len, rows))
    figure = Figure(figsize=(2.2 * columns + 0.6, 2.2 * len(rows)))
    places = figure.subplots(len(rows), columns, squeeze=False)
    largest = max(float(np.abs(each.values).max()) for row in rows for each in row) or 1.0
    for row, row_places in zip(rows, places, strict=True):
        for each, place in zip(row, row_places, strict=True):
            limit = largest if share_scale else float(np.abs(each.values).max()) or 1.0
            image = place.imshow(each.values, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
            if each.marks:
                place.plot(*zip(*((x, y) for y, x in each.marks), strict=True), ".", color="black", markersize=2)
            place.set(**each.axes)
            if not share_scale:
                figure.colorbar(image, ax=place, shrink=0.8)
    if share_scale:
        figure.colorbar(image, ax=places, shrink=0.6)
    return figure
