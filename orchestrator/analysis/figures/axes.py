"""Axes that figures share: optimizer steps, shares, logarithmic ranges, named places."""

import math
from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter

from attnsweep.orchestrator.analysis.figures.texts import figure_text

_MANYFOLD, _TWO_DECADES = 10, 100
_LONG = 36
"""Labels are slanted if the longest one's length times their number exceeds this."""


def scale_shares(panel: Axes, label: str = "") -> None:
    """A vertical axis from 0 to 1, with room for marks at its ends."""
    panel.set_ylim(-0.03, 1.03)
    panel.set_ylabel(label)


def scale_steps(panel: Axes, steps: Sequence[int]) -> None:
    """A horizontal axis of steps; logarithmic from the first probe on if early probes are close together."""
    first = next((step for step in steps if step > 0), 0)
    if first and steps[-1] >= _MANYFOLD * first and len(steps) < steps[-1] / first / 2:
        panel.set_xscale("symlog", linthresh=first, linscale=0.5)
        decades = range(math.ceil(math.log10(first) + 1e-9), math.floor(math.log10(steps[-1])) + 1)
        panel.set_xticks([0.0, *(10.0**each for each in decades)])
        panel.minorticks_off()
    panel.set_xlim(left=0)
    panel.set_xlabel("optimizer steps")


def scale_logarithmic(panel: Axes, axis: Literal["x", "y"], low: float, high: float) -> None:
    """A logarithmic axis whose labels do not touch, however few or many powers of ten it holds."""
    getattr(panel, f"set_{axis}scale")("log")
    ticks = panel.xaxis if axis == "x" else panel.yaxis
    ticks.set_minor_formatter(NullFormatter())
    if high / low < _TWO_DECADES:
        ticks.set_major_locator(LogLocator(subs=(1, 3)) if high / low > _MANYFOLD else MaxNLocator(4))
        ticks.set_major_formatter(FormatStrFormatter("%g"))


def name_places(panel: Axes, names: Sequence[str]) -> None:
    """Puts names at 0, 1, ... of the horizontal axis, slanted if they would touch."""
    short = [figure_text(name, 18) for name in names]
    panel.set_xticks(range(len(short)), short)
    if max(map(len, short), default=0) * len(short) > _LONG:
        panel.tick_params(axis="x", rotation=35)
        for label in panel.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")
