"""The content of a figure, read back from its artists: intervals, bands, texts; and whether it is legible."""

import itertools
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import FillBetweenPolyCollection, LineCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def intervals(panel: Axes, along: Literal["x", "y"] = "y") -> list[tuple[float, float, float, float]]:
    """Every interval of a panel in the order of drawing: its place on the other axis, its middle mark, its two ends.

    The mark is NaN where an interval is drawn without.
    """
    found = []
    for container in (each for each in panel.containers if isinstance(each, ErrorbarContainer)):
        mark, _, bars = container.lines
        column = 0 if along == "x" else 1
        segments = [segment for bar in bars if isinstance(bar, LineCollection) for segment in bar.get_segments()]
        for segment in (np.asarray(each) for each in segments):
            place = segment[0, 1 - column]
            if place == segment[1, 1 - column] and segment[0, column] != segment[1, column]:
                middle = float("nan") if mark is None else float(np.asarray(mark.get_xydata())[0, column])
                low, high = sorted(float(end) for end in segment[:, column])
                found.append((float(place), middle, low, high))
    return found


def lines(panel: Axes) -> list[list[list[float]]]:
    """The points of each line, in the order of drawing."""
    return [np.asarray(line.get_xydata()).tolist() for line in panel.get_lines()]


def bands(panel: Axes) -> list[set[tuple[float, float]]]:
    """The corners of each band, in the order of drawing."""
    found = [each for each in panel.collections if isinstance(each, FillBetweenPolyCollection)]
    return [{(x, y) for path in each.get_paths() for x, y in np.asarray(path.vertices).tolist()} for each in found]


def texts(panel: Axes) -> list[str]:
    """The texts inside or beside a panel, in the order of drawing, without labels of axes and ticks."""
    return [text.get_text() for text in panel.texts]


def legend(figure: Figure) -> list[str]:
    """The texts of a figure's only legend."""
    (one,) = figure.legends
    return [text.get_text() for text in one.get_texts()]


def tick_labels(panel: Axes, axis: Literal["x", "y"]) -> list[str]:
    """The labels of the ticks."""
    return [label.get_text() for label in getattr(panel, f"get_{axis}ticklabels")()]


def unreadable(figure: Figure) -> list[str]:
    """The texts of a figure that overlap, and those cut off at its edge; fails if the figure has no text."""
    words = _words(figure)
    assert words
    over = [f"{a} over {b}" for (a, one), (b, other) in itertools.combinations(words, 2) if _overlap(one, other)]
    edge = figure.bbox
    cut = [
        f"{word} is cut off"
        for word, box in words
        if min(box.x0, box.y0) < -1 or box.x1 > edge.x1 + 1 or box.y1 > edge.y1 + 1
    ]
    return over + cut


def _words(figure: Figure) -> list[tuple[str, Bbox]]:
    """The texts of a figure with their boxes, without ticks beyond the ends of an axis."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    beyond = {
        label
        for axes in figure.axes
        for place, (axis, ends) in enumerate(((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())))
        for label in axis.get_ticklabels(which="both")
        if not min(ends) <= label.get_position()[place] <= max(ends)
    }
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in shown if text not in beyond]
    return [(word, box) for word, box in boxes if box.width > 0]


def _overlap(one: Bbox, other: Bbox) -> bool:
    """Whether two boxes overlap by more than a pixel, which is empty around letters."""
    width, height = min(one.x1, other.x1) - max(one.x0, other.x0), min(one.y1, other.y1) - max(one.y0, other.y0)
    return bool(width > 1 and height > 1)
