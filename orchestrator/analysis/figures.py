"""The common parts of all figures: axes, panels, colours by meaning, texts, legends and intervals.

`house.mplstyle` has the rest of the style. Call these functions within `house_style`. Figures are made without pyplot,
which keeps a reference to every figure and needs a display.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from matplotlib import rcParams, style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FormatStrFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from attnsweep.orchestrator.analysis.labels import clipped, power_label

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
    """Applies the style of all figures, as a `with` block or a decorator; the user's own settings have no effect."""
    with style.context("attnsweep.orchestrator.analysis.house", after_reset=True):
        yield


def share_colours(outcome: str) -> str:
    """The colour map for shares of an outcome: green for `solved`, else the usual one."""
    return "Greens" if outcome == "solved" else str(rcParams["image.cmap"])


def group_style(number: int) -> tuple[str, str, str]:
    """Colour, dashes and marker of a line."""
    return _GROUP_STYLES[number % len(_GROUP_STYLES)]


def legend_below(figure: Figure, handles: Mapping[str, Artist], title: str | None = None, columns: int = 4) -> None:
    """Puts a legend of the artists, given by name, under all panels, in at most `columns` columns."""
    names = [figure_text(name.replace("_", " "), 60) for name in handles]
    figure.legend(handles.values(), names, loc="outside lower center", ncols=columns, title=title)


def figure_text(text: object, most: int = 26) -> str:
    """Shortens a text to one line that Matplotlib draws literally: no formula, no characters that the font lacks."""
    drawn = "".join(letter if ord(letter) in _drawable() else "▯" for letter in clipped(text, most))
    return drawn.replace("$", r"\$")


@functools.cache
def _drawable() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties(family="DejaVu Sans"))).get_charmap())


def draw_interval(panel: Axes, at: float, interval: Interval, along: Literal["x", "y"] = "y", **look: Any) -> None:
    """Draws a point, at `at` on the other axis, with its interval. `look` goes to `Axes.errorbar`."""
    x, y = (interval[0], at) if along == "x" else (at, interval[0])
    panel.errorbar(x, y, **look | {f"{along}err": reach(interval)})


def reach(interval: Interval) -> list[list[float]]:
    """The interval as `Axes.errorbar` takes it; a negative distance becomes 0."""
    estimate, low, high = interval
    return [[max(estimate - low, 0.0)], [max(high - estimate, 0.0)]]


_MANYFOLD, _TWO_DECADES = 10, 100
_LONG = 36
"""Labels are slanted if the length of the longest label times the number of labels exceeds this."""
WIDTH, HEIGHT = 3.4, 2.7
"""The size of a panel in inches: a column of a paper, or the width of a phone."""
_MOST_COLUMNS = 3


def scale_shares(panel: Axes, label: str = "") -> None:
    """Makes the vertical axis run from 0 to 1, with a margin for marks at 0 and 1."""
    panel.set_ylim(-0.03, 1.03)
    panel.set_ylabel(label)


def scale_steps(panel: Axes, steps: Sequence[int]) -> None:
    first = next((step for step in steps if step > 0), 0)
    if first and steps[-1] >= _MANYFOLD * first and len(steps) < steps[-1] / first / 2:
        panel.set_xscale("symlog", linthresh=first, linscale=0.5)
        decades = range(math.ceil(math.log10(first) + 1e-9), math.floor(math.log10(steps[-1])) + 1)
        panel.set_xticks([0.0, *(10.0**power for power in decades)])
        panel.minorticks_off()
        label_powers(panel.xaxis)
    panel.set_xlim(left=0)
    panel.set_xlabel("optimizer steps")


def scale_logarithmic(panel: Axes, axis: Literal["x", "y"], low: float, high: float) -> None:
    """Labels do not overlap, however many powers of ten there are."""
    getattr(panel, f"set_{axis}scale")("log")
    ticks = panel.xaxis if axis == "x" else panel.yaxis
    label_powers(ticks)
    if high / low < _TWO_DECADES:
        ticks.set_major_locator(LogLocator(subs=(1, 3)) if high / low > _MANYFOLD else MaxNLocator(4))
        ticks.set_major_formatter(FormatStrFormatter("%g"))


def label_powers(axis: Axis) -> None:
    """Labels ticks as `10⁻⁴`. Matplotlib's own labels are formulas, which take longer than the rest of the figure."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_label(round(math.log10(value))) if value else "0"))
    axis.set_minor_formatter(NullFormatter())


def title_panel(panel: Axes, title: str) -> None:
    """Call it when the panel's axes are complete."""
    # By default, Matplotlib measures all labels of the vertical axis to place a title, which is slow. So the title gets
    # a fixed height. But a ScalarFormatter may write a factor of all labels, such as 1e6, above the axis. Then
    # Matplotlib places the title, so that it does not cover the factor.
    may_be_in_the_way = isinstance(panel.yaxis.get_major_formatter(), ScalarFormatter)
    panel.set_title(title, y=None if may_be_in_the_way else 1.0)


def name_places(panel: Axes, names: Sequence[str]) -> None:
    """Slanted if they would overlap."""
    short = [figure_text(name, 18) for name in names]
    panel.set_xticks(range(len(short)), short)
    if max(map(len, short), default=0) * len(short) > _LONG:
        panel.tick_params(axis="x", rotation=35)
        for label in panel.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")


def new_figure(width: float = WIDTH, height: float = HEIGHT, grid: Literal["x", "y"] = "y") -> tuple[Figure, Axes]:
    """The size is in inches; the grid has lines along one axis."""
    figure = Figure(figsize=(width, height))
    panel = figure.subplots()
    fix_tick_sizes(panel)
    panel.grid(axis=grid)
    return figure, panel


def new_planes(n: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Panels side by side, each with two parameters as its axes, with a frame and without a grid."""
    figure = Figure(figsize=(width, height))
    panels = list(figure.subplots(1, n, squeeze=False).flat)
    for panel in panels:
        fix_tick_sizes(panel)
        panel.spines[:].set_visible(True)
    return figure, panels


def new_share_panels(n: int, label: str, title: str = "") -> tuple[Figure, list[Axes]]:
    """Makes a figure of `n` panels, up to three in a row. Their vertical axes are shares from 0 to 1, named `label`."""
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
    """Matplotlib creates ticks only when it draws, with the user's sizes, since the `with` block has ended by then."""
    panel.tick_params("x", labelsize=rcParams["xtick.labelsize"])
    panel.tick_params("y", labelsize=rcParams["ytick.labelsize"])
