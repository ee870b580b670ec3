"""How all figures look: one width, one font, colours that the colour-blind tell apart, fixed by meaning. No pyplot."""

import functools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter

from attnsweep.orchestrator.analysis.labels import clipped

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#595959"
OUTCOME_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "solved": "#009E73",
        "degenerate_zero": "#0072B2",
        "marginal": "#56B4E9",
        "runaway": "#CC79A7",
        "plateau": "#E69F00",
        "overfit": "#000000",
        "diverged": "#D55E00",
        "failed": "#595959",
    }
)
"""Okabe & Ito 2008, without its yellow, which is lost on white."""
ROLE_COLOURS: Mapping[str, str] = MappingProxyType(
    {"positional": "#0072B2", "syntactic": "#D55E00", "rare_token": "#009E73", "none": "#595959"}
)
_OTHER_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#000000")
GROUP_STYLES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#E69F00", "-", "v"),
    ("#56B4E9", "--", "P"),
    ("#000000", "-.", "X"),
)
"""The same colours with dashes and markers, by the number of a group; an eighth begins again."""
SHARES = "cividis_r"
"""The colour map of shares, light to dark from 0 to 1: ordered in print too, and alike to the colour-blind."""

WIDTH, HEIGHT = 3.4, 2.7
"""Inches: a column of a paper, and the width of a phone."""
LABEL_SIZE, TICK_SIZE, NOTE_SIZE = 9, 8, 7
DPI = 200
_MANYFOLD, _TWO_DECADES = 10, 100
_LONG = 36
"""Characters of the longest tick label times their number, above which they are slanted."""


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """A figure of one panel, drawn without pyplot: no global state, no display, safe in a thread."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=DPI)
    return figure, figure.subplots()


def role_colour(role: str, roles: Sequence[str]) -> str:
    """The same colour for a role in every figure; roles of a user's own take what is left, in the order of `roles`."""
    if role in ROLE_COLOURS:
        return ROLE_COLOURS[role]
    own = [each for each in roles if each not in ROLE_COLOURS]
    return _OTHER_COLOURS[own.index(role) % len(_OTHER_COLOURS)]


def tidy(panel: Axes, grid: str = "y") -> None:
    """Light grid behind, no box, one size of letters."""
    panel.grid(axis=grid, color="0.9", linewidth=0.6)  # type: ignore[arg-type]
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=TICK_SIZE)
    for axis in (panel.xaxis, panel.yaxis):
        axis.label.set_fontsize(LABEL_SIZE)


def scale_steps(panel: Axes, steps: Sequence[int]) -> None:
    """A logarithmic axis from the first probe on, with 0 beside it, where early probes are close together."""
    first = next((step for step in steps if step > 0), 0)
    if first and steps[-1] >= _MANYFOLD * first and len(steps) < steps[-1] / first / 2:
        panel.set_xscale("symlog", linthresh=first, linscale=0.5)
        decades = range(math.ceil(math.log10(first) + 1e-9), math.floor(math.log10(steps[-1])) + 1)
        panel.set_xticks([0.0, *(10.0**each for each in decades)])
        panel.minorticks_off()
    panel.set_xlim(left=0)
    panel.set_xlabel("optimizer steps", fontsize=LABEL_SIZE)


def scale_logarithmic(panel: Axes, axis: Literal["x", "y"], low: float, high: float) -> None:
    """A logarithmic axis whose labels do not touch, however few or many powers of ten it holds."""
    getattr(panel, f"set_{axis}scale")("log")
    ticks = panel.xaxis if axis == "x" else panel.yaxis
    ticks.set_minor_formatter(NullFormatter())
    if high / low < _TWO_DECADES:
        ticks.set_major_locator(LogLocator(subs=(1, 3)) if high / low > _MANYFOLD else MaxNLocator(4))
        ticks.set_major_formatter(FormatStrFormatter("%g"))


def name_places(panel: Axes, names: Sequence[str]) -> None:
    """Names at 0, 1, ... of the horizontal axis, slanted where they would touch."""
    short = [figure_text(name, 18) for name in names]
    panel.set_xticks(range(len(short)), short)
    if max(map(len, short), default=0) * len(short) > _LONG:
        panel.tick_params(axis="x", rotation=35)
        for label in panel.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")


def reach(share: float, low: float, high: float) -> list[list[float]]:
    """How far an interval goes to either side, as `errorbar` wants it: never below 0 by rounding."""
    return [[max(share - low, 0.0)], [max(high - share, 0.0)]]


def legend_below(figure: Figure, handles: Mapping[str, Artist], title: str | None = None, columns: int = 4) -> None:
    """A legend under all panels, where it hides nothing.

    Args:
        figure: Which.
        handles: What is drawn, by its name.
        title: Of the legend.
        columns: At most.
    """
    names = [figure_text(name.replace("_", " "), 60) for name in handles]
    figure.legend(
        handles.values(),
        names,
        loc="outside lower center",
        ncols=columns,
        fontsize=NOTE_SIZE,
        title=title,
        title_fontsize=NOTE_SIZE,
        frameon=False,
    )


def figure_text(text: object, most: int = 26) -> str:
    """One short line that Matplotlib draws as it stands: no formulas in it, no characters that its font lacks."""
    drawn = "".join(letter if ord(letter) in _drawable() else "▯" for letter in clipped(text, most))
    return drawn.replace("$", r"\$")


@functools.cache
def _drawable() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties(family="DejaVu Sans"))).get_charmap())
