"""A heat map of a signed matrix, white at 0."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray


def draw_heat_map(panel: Axes, matrix: NDArray[np.float64], title: str, columns: str, rows: str) -> None:
    """Draws a matrix (rows, columns) with its colour bar: red above 0, blue below.

    Args:
        panel: The axes to draw into.
        matrix: Finite values.
        title: Title of the axes.
        columns, rows: Labels of the two axes.
    """
    largest = float(np.abs(matrix).max()) or 1.0
    image = panel.imshow(matrix, cmap="RdBu_r", vmin=-largest, vmax=largest, interpolation="nearest")
    panel.set_title(title, fontsize=9)
    panel.set_xlabel(columns, fontsize=8)
    panel.set_ylabel(rows, fontsize=8)
    panel.tick_params(labelsize=7)
    figure = panel.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=panel, shrink=0.8).ax.tick_params(labelsize=7)
