"""New figures, with their size and panels. Call these functions within `house_style`.

Figures are made without pyplot, which keeps a reference to every figure and needs a display.
"""

import math
from typing import Literal

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures.axes import scale_shares

WIDTH, HEIGHT = 3.4, 2.7
"""The size of a panel in inches: a column of a paper, or the width of a phone."""
_MOST_COLUMNS = 3


def new_figure(width: float = WIDTH, height: float = HEIGHT, grid: Literal["x", "y"] = "y") -> tuple[Figure, Axes]:
    """A figure of one panel, its size in inches, with grid lines along one axis."""
    figure = Figure(figsize=(width, height))
    panel = figure.subplots()
    fix_tick_sizes(panel)
    panel.grid(axis=grid)
    return figure, panel


def new_planes(n: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of `n` panels side by side for planes of two parameters: with a frame, without a grid."""
    figure = Figure(figsize=(width, height))
    panels = list(figure.subplots(1, n, squeeze=False).flat)
    for panel in panels:
        fix_tick_sizes(panel)
        panel.spines[:].set_visible(True)
    return figure, panels


def new_share_panels(n: int, label: str, title: str = "") -> tuple[Figure, list[Axes]]:
    """A figure of panels whose vertical axis is a share, in rows of up to three.

    Args:
        n: The number of panels.
        label: The label of the vertical axes.
        title: The title above all panels.
    """
    columns = min(n, _MOST_COLUMNS)
    rows = math.ceil(n / columns)
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows + 0.3 * bool(title)))
    panels = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
    for place, panel in enumerate(panels):
        fix_tick_sizes(panel)
        panel.grid(axis="y")
        panel.set_visible(place < n)
    for panel in panels[::columns]:
        scale_shares(panel, label)
    if title:
        figure.suptitle(title)
    return figure, panels[:n]


def fix_tick_sizes(panel: Axes) -> None:
    """Sets the size of tick labels now: ticks are made when the figure is drawn, outside of the house style."""
    panel.tick_params("x", labelsize=rcParams["xtick.labelsize"])
    panel.tick_params("y", labelsize=rcParams["ytick.labelsize"])
