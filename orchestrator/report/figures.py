"""Figures that only a report has: one panel each, so that a phone can stack them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from attnsweep.orchestrator.analysis.figures.style import (
    GREY,
    LABEL_SIZE,
    NOTE_SIZE,
    OUTCOME_COLOURS,
    SHARES,
    TICK_SIZE,
    VERMILION,
    WIDTH,
    figure_text,
    name_places,
    new_figure,
    reach,
    scale_steps,
    tidy,
)
from attnsweep.orchestrator.analysis.intervals import Rate, rate_label
from attnsweep.orchestrator.analysis.labels import decimals, parameter_label
from attnsweep.orchestrator.analysis.rates import ParameterRates
from attnsweep.orchestrator.report.facts import OutcomeShare, ReferenceLevel
from attnsweep.orchestrator.report.learning_curves import LearningCurve
from attnsweep.orchestrator.report.regions import Cell, Regions
from attnsweep.search_spaces.dimensions import Float

_DECADES = 1.3
"""Between the largest and the smallest loss, from which the axis of losses is logarithmic."""
_BEYOND_LEVELS = 30
"""Times the highest and below the lowest reference level: how far a logarithmic axis of losses goes."""
_HIGHEST = 1e30
"""Loss on an axis: what diverged may come near the largest float, which axes do not draw."""
_FEW_DECADES = 2.5
"""On an axis, so that 2 and 5 are marked too."""
_DARK = 0.55
"""Share, from which black letters on its colour are hard to read."""
_LABEL_GAP = 0.062
"""Of the axis, between the labels of two levels."""


def rates_figure(
    names: Sequence[str], rates: Sequence[Rate], colours: Sequence[str], title: str, counted: str
) -> Figure:
    """Shares of trainings, one row each, with 95% intervals.

    Args:
        names: Of the rows, from above.
        rates: One each.
        colours: One each.
        title: Of the axis.
        counted: What the numbers beside the rows are of.
    """
    figure, panel = new_figure(height=0.75 + 0.27 * max(len(names), 2))
    for row, (rate, colour) in enumerate(zip(rates, colours, strict=True)):
        if rate.share is None or rate.low is None or rate.high is None:
            continue
        panel.barh(row, rate.share, height=0.66, color=colour, alpha=0.85, linewidth=0)
        bounds = reach(rate.share, rate.low, rate.high)
        panel.errorbar(rate.share, row, xerr=bounds, fmt="none", ecolor="black", elinewidth=1, capsize=2)
        _beside(panel, f"{rate.k:,}", row)
    _beside(panel, counted, -0.8)
    panel.set_yticks(range(len(names)), [figure_text(name) for name in names])
    panel.set_ylim(len(names) - 0.45, -0.55)
    panel.set_xlim(0, 1)
    panel.set_xlabel(title)
    tidy(panel, "x")
    return figure


def outcomes_figure(shares: Sequence[OutcomeShare]) -> Figure:
    """What trainings ended as."""
    names = [each.outcome for each in shares]
    colours = [OUTCOME_COLOURS.get(name, GREY) for name in names]
    return rates_figure(
        [name.replace("_", " ") for name in names],
        [each.rate for each in shares],
        colours,
        "share of trainings",
        "trainings",
    )


def _beside(panel: Axes, text: str, row: float) -> None:
    """In the right margin."""
    panel.annotate(
        text, (1, row), (4, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=NOTE_SIZE, color=GREY
    )


@dataclass(frozen=True, slots=True)
class CellsFigure:
    """What was observed in regions, and what each cell says in full, by the `gid` of its patch."""

    figure: Figure
    hover: dict[str, str]


def cells_figure(regions: Regions, measure: str) -> CellsFigure:
    """The stuck or the solved share in each cell of the two parameters, intervals written in.

    Args:
        regions: Of two axes.
        measure: `stuck` or `solved`.
    """
    across, up = regions.axes
    n_columns, n_rows = len(across.bins), len(up.bins)
    figure, panel = new_figure(max(WIDTH, 1.0 + 0.62 * n_columns), max(2.4, 0.95 + 0.42 * n_rows))
    hover = {}
    for cell in regions.cells:
        column, row = cell.place
        rate = cell.stuck if measure == "stuck" else cell.solved
        gid = f"cell-{measure}-{column}-{row}"
        _draw_cell(panel, cell, rate, gid)
        places = ", ".join(f"{name} {label}" for name, label in regions.labels(cell))
        hover[gid] = f"{places}: {measure} {rate_label(rate)} trainings, {cell.n_trials} trials"
    panel.set_xlim(-0.5, n_columns - 0.5)
    panel.set_ylim(-0.5, n_rows - 0.5)
    name_places(panel, [each.label for each in across.bins])
    panel.set_yticks(range(n_rows), [figure_text(each.label, 14) for each in up.bins])
    panel.tick_params(labelsize=TICK_SIZE, length=0)
    _mark_edges(panel.xaxis, across, ha="center")
    _mark_edges(panel.yaxis, up, ha="right")
    panel.set_xlabel(parameter_label(across.parameter), fontsize=LABEL_SIZE)
    panel.set_ylabel(parameter_label(up.parameter), fontsize=LABEL_SIZE)
    panel.set_title(f"{measure} share observed, 95% interval", fontsize=LABEL_SIZE)
    panel.spines[:].set_visible(False)
    if regions.best is not None:
        column, row = regions.best.place
        frame = Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor=VERMILION, linewidth=1.8)
        panel.add_patch(frame)
    return CellsFigure(figure, hover)


def _mark_edges(axis: Axis, rates: ParameterRates, ha: str) -> None:
    """Ticks where the bins of a range end; choices and whole numbers keep the names of their bins."""
    if isinstance(rates.dimension, Float):
        ends = [each.low for each in rates.bins] + [rates.bins[-1].high]
        labels = [_number(end) for end in ends if end is not None]
        axis.set_ticks([at - 0.5 for at in range(len(labels))], labels, rotation=0, ha=ha)
        axis.set_tick_params(length=3)


def _number(value: float) -> str:
    """`$10^{-4}$` for a power of ten with many zeros, else as short as it is."""
    power = round(math.log10(value)) if value > 0 else 0
    return f"$10^{{{power}}}$" if abs(power) > 1 and value == float(f"1e{power}") else f"{value:.3g}"


def _draw_cell(panel: Axes, cell: Cell, rate: Rate, gid: str) -> None:
    x, y = cell.place
    patch = Rectangle((x - 0.5, y - 0.5), 1, 1, edgecolor="white", linewidth=1, gid=gid)
    panel.add_patch(patch)
    if rate.share is None or rate.low is None or rate.high is None:
        patch.set(facecolor="0.93", hatch="///", edgecolor="0.8", linewidth=0)
        return
    patch.set_facecolor(colormaps[SHARES](rate.share))
    colour = "white" if rate.share > _DARK else "black"
    digits = decimals(rate.low, rate.high)
    words = f"{rate.low:.{digits}f}–{rate.high:.{digits}f}"
    panel.text(x, y, f"{rate.share:.{digits}f}", ha="center", va="bottom", fontsize=TICK_SIZE, color=colour)
    panel.text(x, y - 0.08, words, ha="center", va="top", fontsize=NOTE_SIZE - 0.5, color=colour)


def curve_figures(curves: Sequence[LearningCurve], levels: Sequence[ReferenceLevel]) -> list[tuple[str, Figure]]:
    """The loss by step, a figure for each outcome: median, the middle half, and the reference levels as lines.

    All have the same axis of losses, but for what diverged.
    """
    common = [curve for curve in curves if curve.outcome != "diverged"]
    highest = sorted(levels, key=lambda level: level.median)[-1:]
    return [
        (each.outcome, _curve_figure(each, levels, common) if each in common else _curve_figure(each, highest, [each]))
        for each in curves
    ]


def _curve_figure(curve: LearningCurve, levels: Sequence[ReferenceLevel], together: Sequence[LearningCurve]) -> Figure:
    figure, panel = new_figure()
    colour = OUTCOME_COLOURS.get(curve.outcome, GREY)
    steps = [point.step for point in curve.points]
    losses = [(point.low, point.median, point.high) for point in curve.points]
    low, median, high = np.minimum(losses, _HIGHEST).T
    panel.fill_between(steps, low, high, color=colour, alpha=0.25, linewidth=0)
    panel.plot(steps, median, color=colour, linewidth=1.6, marker="o", markersize=2.5)
    scale_steps(panel, sorted({point.step for each in together for point in each.points}))
    if len(steps) > 1:
        panel.set_xlim(right=max(point.step for each in together for point in each.points))
    _scale_losses(panel, together, levels)
    _draw_levels(panel, levels)
    panel.set_ylabel("evaluation loss")
    name = figure_text(curve.outcome.replace("_", " "))
    s = "" if curve.n_trainings == 1 else "s"
    panel.set_title(f"{name}, {curve.n_trainings:,} training{s}", fontsize=LABEL_SIZE)
    tidy(panel)
    return figure


def _scale_losses(panel: Axes, curves: Sequence[LearningCurve], levels: Sequence[ReferenceLevel]) -> None:
    diverged = any(curve.outcome == "diverged" for curve in curves)
    losses = [value for curve in curves for point in curve.points for value in (point.low, point.high)]
    losses += [level.median for level in levels]
    lowest, highest = min(losses), min(max(losses), _HIGHEST)
    known = [level.median for level in levels if level.median > 0]
    if known and not diverged:
        lowest, highest = max(lowest, min(known) / _BEYOND_LEVELS), min(highest, max(known) * _BEYOND_LEVELS)
    if lowest > 0 and math.log10(highest / lowest) >= _DECADES:
        panel.set_yscale("log")
        room = (highest / lowest) ** 0.05
        panel.set_ylim(lowest / room, highest * room)
        if math.log10(highest / lowest) < _FEW_DECADES:
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        panel.yaxis.set_minor_locator(NullLocator())
        return
    room = 0.05 * (highest - lowest) or 0.05 * abs(highest) or 1.0
    panel.set_ylim(lowest - room, highest + room)


def _draw_levels(panel: Axes, levels: Sequence[ReferenceLevel]) -> None:
    """Lines at the levels' medians; their names in the right margin, moved apart where they are close."""
    bottom, top = panel.get_ylim()
    to_axis = math.log if panel.get_yscale() == "log" else float
    seen = sorted((level.median, level.name) for level in levels if bottom <= level.median <= top)
    at = [(to_axis(value) - to_axis(bottom)) / (to_axis(top) - to_axis(bottom)) for value, _ in seen]
    for (value, name), place, moved in zip(seen, at, _apart(at), strict=True):
        panel.axhline(value, color=GREY, linewidth=0.8, linestyle="-" if name == "solved" else (0, (4, 2)), zorder=1)
        panel.annotate(
            figure_text(name.replace("_", " "), 18),
            (1, place),
            xycoords="axes fraction",
            xytext=(1.06, moved),
            textcoords="axes fraction",
            va="center",
            fontsize=NOTE_SIZE,
            color=GREY,
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 0},
            annotation_clip=False,
        )


def _apart(places: Sequence[float]) -> list[float]:
    """Rising places moved as little as keeps neighbours a label apart, and inside the axis where that is possible."""
    moved = np.array(places)
    for _ in range(100):
        gaps = np.diff(moved)
        if not (gaps < _LABEL_GAP - 1e-6).any():
            break
        for index in np.flatnonzero(gaps < _LABEL_GAP - 1e-6):
            push = (_LABEL_GAP - (moved[index + 1] - moved[index])) / 2
            moved[index] -= push
            moved[index + 1] += push
        moved += max(0.0, -float(moved[0])) - max(0.0, float(moved[-1]) - 1.0) if len(moved) * _LABEL_GAP < 1 else 0.0
    return [float(place) for place in moved]
