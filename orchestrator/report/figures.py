"""Figures of a report that `orchestrator.analysis.figures` has not: one panel each, so that a phone can stack them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from orchestrator.analysis.intervals import Rate, rate_label
from orchestrator.report.facts import OutcomeShare, ReferenceLevel
from orchestrator.report.labels import parameter_label
from orchestrator.report.learning_curves import LearningCurve
from orchestrator.report.phase import Cell, Phase
from orchestrator.report.style import (
    GREY,
    LABEL_SIZE,
    NOTE_SIZE,
    OUTCOME_COLOURS,
    TICK_SIZE,
    WIDTH,
    figure_text,
    new_figure,
    scale_steps,
    tidy,
)

_DECADES = 1.3
"""Between the largest and the smallest loss, from which the axis of losses is logarithmic."""
_BEYOND_LEVELS = 30
"""Times the highest and below the lowest reference level: how far a logarithmic axis of losses goes."""
_FEW_DECADES = 2.5
"""On an axis, so that 2 and 5 are marked too."""
_LABEL_GAP = 0.062
"""Of the axis, between the labels of two levels."""


def rates_figure(names: Sequence[str], rates: Sequence[Rate], colours: Sequence[str], title: str) -> Figure:
    """Shares of trainings, one row each, with 95% intervals.

    Args:
        names: Of the rows, from above.
        rates: One each.
        colours: One each.
        title: Of the axis.
    """
    figure, panel = new_figure(height=0.75 + 0.27 * max(len(names), 2))
    for row, (rate, colour) in enumerate(zip(rates, colours, strict=True)):
        if rate.share is None or rate.low is None or rate.high is None:
            continue
        panel.barh(row, rate.share, height=0.66, color=colour, alpha=0.85, linewidth=0)
        bounds = [[max(rate.share - rate.low, 0.0)], [max(rate.high - rate.share, 0.0)]]
        panel.errorbar(rate.share, row, xerr=bounds, fmt="none", ecolor="black", elinewidth=1, capsize=2)
        note = (1, row), "  " + f"{rate.k:,}"
        panel.annotate(
            note[1], note[0], xycoords=("axes fraction", "data"), va="center", fontsize=NOTE_SIZE, color=GREY
        )
    panel.set_yticks(range(len(names)), [figure_text(name) for name in names])
    panel.set_ylim(len(names) - 0.45, -0.55)
    panel.set_xlim(0, 1)
    panel.set_xlabel(title, fontsize=LABEL_SIZE)
    tidy(panel, "x")
    return figure


def outcomes_figure(shares: Sequence[OutcomeShare]) -> Figure:
    """What trainings ended as."""
    names = [each.outcome for each in shares]
    colours = [OUTCOME_COLOURS.get(name, GREY) for name in names]
    return rates_figure(
        [name.replace("_", " ") for name in names], [each.rate for each in shares], colours, "share of trainings"
    )


@dataclass(frozen=True, slots=True)
class PhaseFigure:
    """A phase diagram, and what each of its cells says in full, by the `gid` of its patch."""

    figure: Figure
    hover: dict[str, str]


def phase_figure(phase: Phase, measure: str) -> PhaseFigure:
    """The stuck or the solved share in each cell of the two parameters, intervals written in.

    Args:
        phase: Of two axes.
        measure: `stuck` or `solved`.
    """
    across, up = phase.axes
    n_columns, n_rows = len(across.bins), len(up.bins)
    figure, panel = new_figure(max(WIDTH, 1.25 + 0.56 * n_columns), max(2.2, 1.15 + 0.42 * n_rows))
    hover = {}
    for cell in phase.cells:
        column, row = cell.place
        rate = cell.stuck if measure == "stuck" else cell.solved
        gid = f"cell-{measure}-{column}-{row}"
        patch = Rectangle((column - 0.5, row - 0.5), 1, 1, edgecolor="white", linewidth=1, gid=gid)
        _fill(panel, patch, rate)
        places = ", ".join(f"{name} {label}" for name, label in phase.labels(cell))
        hover[gid] = f"{places}: {measure} {rate_label(rate)} trainings, {cell.n_trials} trials"
    panel.set_xlim(-0.5, n_columns - 0.5)
    panel.set_ylim(-0.5, n_rows - 0.5)
    long = any(len(each.label) > 9 for each in across.bins)
    names = [figure_text(each.label, 14) for each in across.bins]
    panel.set_xticks(range(n_columns), names, rotation=35 if long else 0, ha="right" if long else "center")
    if long:
        for label in panel.get_xticklabels():
            label.set_rotation_mode("anchor")
    panel.set_yticks(range(n_rows), [figure_text(each.label, 14) for each in up.bins])
    panel.tick_params(labelsize=TICK_SIZE - 1, length=0)
    panel.set_xlabel(parameter_label(across.parameter), fontsize=LABEL_SIZE)
    panel.set_ylabel(parameter_label(up.parameter), fontsize=LABEL_SIZE)
    panel.set_title(f"{measure} share, 95% interval", fontsize=LABEL_SIZE)
    panel.spines[:].set_visible(False)
    if phase.best is not None:
        column, row = phase.best.place
        frame = Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor="#D55E00", linewidth=1.8)
        panel.add_patch(frame)
    return PhaseFigure(figure, hover)


def _fill(panel: Axes, patch: Rectangle, rate: Rate) -> None:
    middle = (patch.get_x() + 0.5, patch.get_y() + 0.5)
    if rate.share is None or rate.low is None or rate.high is None:
        patch.set(facecolor="0.93", hatch="///", edgecolor="0.8", linewidth=0)
        panel.add_patch(patch)
        return
    # Light to dark from 0 to 1: ordered in print too.
    patch.set_facecolor(colormaps["cividis_r"](0.05 + 0.95 * rate.share))
    panel.add_patch(patch)
    colour = "white" if rate.share > 0.55 else "black"
    x, y = middle
    panel.text(x, y + 0.04, f"{rate.share:.2f}", ha="center", va="bottom", fontsize=TICK_SIZE, color=colour)
    panel.text(
        x, y - 0.08, f"{rate.low:.2f}–{rate.high:.2f}", ha="center", va="top", fontsize=NOTE_SIZE - 0.5, color=colour
    )


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
    low, high = [point.low for point in curve.points], [point.high for point in curve.points]
    panel.fill_between(steps, low, high, color=colour, alpha=0.25, linewidth=0)
    panel.plot(steps, [point.median for point in curve.points], color=colour, linewidth=1.6, marker="o", markersize=2.5)
    scale_steps(panel, sorted({point.step for each in together for point in each.points}))
    if len(steps) > 1:
        panel.set_xlim(right=max(point.step for each in together for point in each.points))
    _scale_losses(panel, together, levels)
    _draw_levels(panel, levels)
    panel.set_ylabel("evaluation loss", fontsize=LABEL_SIZE)
    name = figure_text(curve.outcome.replace("_", " "))
    s = "" if curve.n_trainings == 1 else "s"
    panel.set_title(f"{name}, {curve.n_trainings:,} training{s}", fontsize=LABEL_SIZE)
    tidy(panel)
    return figure


def _scale_losses(panel: Axes, curves: Sequence[LearningCurve], levels: Sequence[ReferenceLevel]) -> None:
    diverged = any(curve.outcome == "diverged" for curve in curves)
    losses = [value for curve in curves for point in curve.points for value in (point.low, point.high)]
    losses += [level.median for level in levels]
    lowest, highest = min(losses), max(losses)
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


def cells_of(phase: Phase) -> list[list[Cell]]:
    """The cells as rows of a table, the first axis across, the second from its highest bin down."""
    n_rows = len(phase.axes[1].bins)
    return [[cell for cell in phase.cells if cell.place[1] == row] for row in reversed(range(n_rows))]
