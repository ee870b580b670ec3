"""One heat map: a matrix with signs, white at 0."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray


def draw_heat_map(panel: Axes, matrix: NDArray[np.float64], title: str, columns: str, rows: str) -> None:
    """Draws a matrix (rows, columns) with its colour bar: red above 0, blue below.

    Args:
        panel: Where.
        matrix: Finite values.
        title: Above it.
        columns, rows: What its columns and rows are.
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
