"""Texts of figures: users' texts are drawn literally, and legends are outside of the panels."""

import functools
from collections.abc import Mapping

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from attnsweep.orchestrator.analysis.labels import clipped


def legend_below(figure: Figure, handles: Mapping[str, Artist], title: str | None = None, columns: int = 4) -> None:
    """Puts a legend under all panels.

    Args:
        figure: The figure.
        handles: The artists in the legend, by name.
        title: The title of the legend.
        columns: The most columns of the legend.
    """
    names = [figure_text(name.replace("_", " "), 60) for name in handles]
    figure.legend(handles.values(), names, loc="outside lower center", ncols=columns, title=title)


def figure_text(text: object, most: int = 26) -> str:
    """A text on one short line that Matplotlib draws literally: no formulas, no characters that the font lacks."""
    drawn = "".join(letter if ord(letter) in _drawable() else "▯" for letter in clipped(text, most))
    return drawn.replace("$", r"\$")


@functools.cache
def _drawable() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties(family="DejaVu Sans"))).get_charmap())
