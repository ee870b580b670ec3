"""The parts of the style that `house.mplstyle` cannot express: colours by meaning, texts, legends and intervals."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib import rcParams, style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.typing import ColorType

from attnsweep.orchestrator.analysis.labels import clipped
from attnsweep.workloads.vocabulary import ROLES

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#595959"
ROLE_COLOURS = {name: role.colour for name, role in ROLES.items()}
_OTHER_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#000000")
_GROUP_STYLES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#E69F00", "-", "v"),
    ("#56B4E9", "--", "P"),
    ("#000000", "-.", "X"),
)
Interval: TypeAlias = tuple[float, float, float]
"""An estimate, and the bounds of its interval."""


@contextmanager
def house_style() -> Iterator[None]:
    """Applies the style of all figures, as a `with` block or a decorator. The user's own Matplotlib settings have no
    effect in it."""
    with style.context("attnsweep.orchestrator.analysis.figures.house", after_reset=True):
        yield


def share_colours(outcome: str) -> str:
    """Returns the name of the colour map for shares of an outcome. For the outcome `solved` it is green, because there
    a large share is good."""
    return "Greens" if outcome == "solved" else str(rcParams["image.cmap"])


def group_style(number: int) -> tuple[str, str, str]:
    """Returns the colour, dashes and marker of the group with this number. The styles repeat after seven groups."""
    return _GROUP_STYLES[number % len(_GROUP_STYLES)]


def role_colour(role: str, roles: Sequence[str]) -> str:
    """Returns the colour of an attention head's role, the same in every figure; a user's own roles get further colours
    in turn."""
    if role in ROLE_COLOURS:
        return ROLE_COLOURS[role]
    own = [own_role for own_role in roles if own_role not in ROLE_COLOURS]
    return _OTHER_COLOURS[own.index(role) % len(_OTHER_COLOURS)]


def letters_on(colour: ColorType) -> str:
    """Returns black or white, whichever contrasts more with a background colour: at least 4.58 by the formula of WCAG
    2."""
    channels = np.array(to_rgb(colour))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ (0.2126, 0.7152, 0.0722))
    return "black" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "white"


def legend_below(figure: Figure, handles: Mapping[str, Artist], title: str | None = None, columns: int = 4) -> None:
    """Puts a legend under all panels.

    Args:
        handles: The artists in the legend, by name.
        title: The title of the legend.
        columns: The most columns of the legend.
    """
    names = [figure_text(name.replace("_", " "), 60) for name in handles]
    figure.legend(handles.values(), names, loc="outside lower center", ncols=columns, title=title)


def figure_text(text: object, most: int = 26) -> str:
    """Shortens a text to one line that Matplotlib draws literally: not as a formula, and without characters that the
    font lacks."""
    drawn = "".join(letter if ord(letter) in _drawable() else "▯" for letter in clipped(text, most))
    return drawn.replace("$", r"\$")


@functools.cache
def _drawable() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties(family="DejaVu Sans"))).get_charmap())


def draw_interval(panel: Axes, at: float, interval: Interval, along: Literal["x", "y"] = "y", **look: Any) -> None:
    """Draws a point with its confidence interval.

    Args:
        at: The point's coordinate on the other axis.
        interval: The estimate with its bounds.
        along: The axis of the estimate.
        look: Further arguments of `Axes.errorbar`.
    """
    x, y = (interval[0], at) if along == "x" else (at, interval[0])
    panel.errorbar(x, y, **look | {f"{along}err": reach(interval)})


def draw_bar(panel: Axes, row: float, interval: Interval, height: float, colour: str, label: str = "") -> None:
    """Draws a horizontal bar as long as the estimate, with its confidence interval."""
    panel.barh(row, interval[0], height=height, color=colour, alpha=0.85, linewidth=0, label=label)
    draw_interval(panel, row, interval, "x", fmt="none", ecolor="black", elinewidth=1)


def reach(interval: Interval) -> list[list[float]]:
    """Returns the distances from the estimate to the bounds of its interval, as `Axes.errorbar` takes them; none is
    negative."""
    estimate, low, high = interval
    return [[max(estimate - low, 0.0)], [max(high - estimate, 0.0)]]
