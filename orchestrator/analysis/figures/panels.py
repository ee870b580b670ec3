"""New figures and their axes: panels, optimizer steps, shares, logarithmic ranges, named places.

Call these functions within `house_style`. Figures are made without pyplot, which keeps a reference to every figure and
needs a display.
"""

import math
from collections.abc import Sequence
from typing import Literal

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from attnsweep.orchestrator.analysis.figures.style import figure_text

_MANYFOLD, _TWO_DECADES = 10, 100
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LONG = 36
"""Labels are slanted if the longest one's length times their number exceeds this."""
WIDTH, HEIGHT = 3.4, 2.7
"""The size of a panel in inches: a column of a paper, or the width of a phone."""
_MOST_COLUMNS = 3


def scale_shares(panel: Axes, label: str = "") -> None:
    """Makes the vertical axis run from 0 to 1, with a margin for marks at 0 and 1."""
    panel.set_ylim(-0.03, 1.03)
    panel.set_ylabel(label)


def scale_steps(panel: Axes, steps: Sequence[int]) -> None:
    """Sets up the horizontal axis for training steps; logarithmic from the first probe on if early probes are close
    together."""
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
    """Makes an axis logarithmic, with labels that do not overlap, however many powers of ten it covers."""
    getattr(panel, f"set_{axis}scale")("log")
    ticks = panel.xaxis if axis == "x" else panel.yaxis
    label_powers(ticks)
    if high / low < _TWO_DECADES:
        ticks.set_major_locator(LogLocator(subs=(1, 3)) if high / low > _MANYFOLD else MaxNLocator(4))
        ticks.set_major_formatter(FormatStrFormatter("%g"))


def label_powers(axis: Axis) -> None:
    """Labels the powers of ten at an axis's major ticks.

    Matplotlib's own labels are formulas, which take more time than the rest of the figure.
    """
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_label(round(math.log10(value))) if value else "0"))
    axis.set_minor_formatter(NullFormatter())


def power_label(power: int) -> str:
    """Formats a power of ten: 10⁻⁴ for -4."""
    return "10" + str(power).translate(_SUPERSCRIPTS)


def number_label(value: float) -> str:
    """Formats a number as 10⁻⁴ if it is a power of ten with many zeros; else with up to three digits."""
    power = round(math.log10(value)) if value > 0 else 0
    return power_label(power) if abs(power) > 1 and value == float(f"1e{power}") else f"{value:.3g}"


def bin_label(label: str) -> str:
    """Formats a bin's label for an axis: 10⁻⁴–10⁻³ for `1e-4..1e-3`. Labels that are not ranges stay as they are."""
    try:
        low, high = map(float, label.split(".."))
    except ValueError:
        return label
    return f"{number_label(low)}–{number_label(high)}"


def title_panel(panel: Axes, title: str) -> None:
    """Puts a title above a panel; call it when the panel's axes are complete.

    The title's height is fixed where possible: to find one itself, Matplotlib measures all labels of the vertical axis
    several times. It must do so where a power of ten may be written above the axis.
    """
    may_be_in_the_way = isinstance(panel.yaxis.get_major_formatter(), ScalarFormatter)
    panel.set_title(title, y=None if may_be_in_the_way else 1.0)


def name_places(panel: Axes, names: Sequence[str]) -> None:
    """Labels the positions 0, 1, ... of the horizontal axis with names, slanted if they would overlap."""
    short = [figure_text(name, 18) for name in names]
    panel.set_xticks(range(len(short)), short)
    if max(map(len, short), default=0) * len(short) > _LONG:
        panel.tick_params(axis="x", rotation=35)
        for label in panel.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")


def new_figure(width: float = WIDTH, height: float = HEIGHT, grid: Literal["x", "y"] = "y") -> tuple[Figure, Axes]:
    """Makes a figure of one panel, with its size in inches and grid lines along one axis."""
    figure = Figure(figsize=(width, height))
    panel = figure.subplots()
    fix_tick_sizes(panel)
    panel.grid(axis=grid)
    return figure, panel


def new_planes(n: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Makes a figure of `n` panels side by side, each for a plane of two parameters: with a frame, without a grid."""
    figure = Figure(figsize=(width, height))
    panels = list(figure.subplots(1, n, squeeze=False).flat)
    for panel in panels:
        fix_tick_sizes(panel)
        panel.spines[:].set_visible(True)
    return figure, panels


def new_share_panels(n: int, label: str, title: str = "") -> tuple[Figure, list[Axes]]:
    """Makes a figure of panels whose vertical axis is a share from 0 to 1, up to three panels in a row.

    Args:
        n: The number of panels.
        label: The label of the vertical axes.
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
    """Sets the size of tick labels now: Matplotlib creates ticks when it draws, and the house style is off by then."""
    panel.tick_params("x", labelsize=rcParams["xtick.labelsize"])
    panel.tick_params("y", labelsize=rcParams["ytick.labelsize"])
