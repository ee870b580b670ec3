"""The report's own figures: cells of two parameters, shares, roles, curves, and the Pareto front."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from attnsweep.orchestrator.analysis.figures import (
    GREY,
    VERMILION,
    draw_bar,
    figure_text,
    house_style,
    label_powers,
    legend_below,
    new_figure,
    number_label,
    role_colour,
    scale_steps,
    title_panel,
)
from attnsweep.orchestrator.analysis.learning_curves import LearningCurve
from attnsweep.orchestrator.analysis.rates.by_parameter import Ending, ParameterRates
from attnsweep.orchestrator.analysis.rates.figures import are_written, draw_cell, draw_scale, new_cells
from attnsweep.orchestrator.analysis.rates.intervals import Rate, rate_label
from attnsweep.orchestrator.analysis.results import Preferred
from attnsweep.orchestrator.analysis.role_results import RoleResults
from attnsweep.orchestrator.report.facts import OutcomeShare, ReferenceLevel
from attnsweep.orchestrator.report.measured import MetricCurves, RoleShare
from attnsweep.orchestrator.report.regions import Regions
from attnsweep.search_spaces.dimensions import Float
from attnsweep.search_spaces.measured import WORST_LOSS, LossQuantile, Measured, goal_of

_DECADES = 1.3
"""The axis of losses is logarithmic if the largest and the smallest loss are at least this many decades apart."""
_BEYOND_LEVELS = 30
"""A logarithmic axis of losses reaches from the lowest reference level (a loss known in advance) divided by this factor
to the highest one times this factor."""
_HIGHEST = 1e30
"""The largest loss on an axis. The loss of a diverged training may be too large for Matplotlib to draw."""
_FEW_DECADES = 2.5
"""A logarithmic axis of fewer decades than this has ticks at 2 and 5 times powers of ten too."""
_MOST_EDGES = 7
"""A logarithmic axis with more edges of cells than this labels powers of ten only."""
_LABEL_GAP = 0.062
"""The least distance between the labels of two reference levels (losses known in advance), as a share of the axis."""
_MOST_POINTS = 2000
"""The most trials of one kind in the figure of the Pareto front. Each trial is a path in the page, so more of them
would make the page slow."""
_MANYFOLD = 100.0
"""The axis of a metric is logarithmic if its largest value is at least this many times its smallest."""


@house_style()
def cells_figure(regions: Regions, ending: Ending) -> tuple[Figure, dict[str, str]]:
    """Draws a rate over two parameters, a cell for each pair of bins.

    Returns:
        The figure, and the full text of each cell by the `gid` of the cell's patch.
    """
    measure = ending.label
    across, up = regions.axes
    names = (across.parameter, up.parameter)
    figure, panel = new_cells(names, [[bin_.label for bin_ in axis.bins] for axis in regions.axes])
    hover = {}
    for cell in regions.cells:
        column, row = cell.place
        rate = cell.asked if ending == regions.question.ending else cell.solved
        gid = f"cell-{ending.file_label}-{column}-{row}"
        draw_cell(panel, cell.place, rate, gid, outcome=ending.outcome)
        places = ", ".join(f"{name} {label}" for name, label in regions.labels(cell))
        hover[gid] = f"{places}: {measure} {rate_label(rate)} trainings, {cell.n_trials} trials"
    _mark_edges(panel.xaxis, across, ha="center")
    _mark_edges(panel.yaxis, up, ha="right")
    draw_scale(figure, panel, ending)
    title_panel(panel, f"{measure} share observed{', 95% interval' if are_written(panel) else ''}")
    if regions.best is not None:
        column, row = regions.best.place
        frame = Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor=VERMILION, linewidth=1.8)
        panel.add_patch(frame)
    return figure, hover


def _mark_edges(axis: Axis, rates: ParameterRates, ha: str) -> None:
    """For a `Float`, labels the edges of the bins instead of the bins."""
    if isinstance(rates.dimension, Float):
        ends = [bin_.low for bin_ in rates.bins] + [rates.bins[-1].high]
        labels = [number_label(end) for end in ends if end is not None]
        if len(labels) > _MOST_EDGES and rates.dimension.log:
            labels = [
                label if end and math.log10(end).is_integer() else "" for label, end in zip(labels, ends, strict=True)
            ]
        axis.set_ticks([at - 0.5 for at in range(len(labels))], labels, rotation=0, ha=ha)
        axis.set_tick_params(length=3)


@house_style()
def shares_figure(
    names: Sequence[str], rates: Sequence[Rate], colours: Sequence[str], title: str, counted: str
) -> Figure:
    """One row per share, with its 95% interval.

    Args:
        counted: What is counted by the numbers beside the rows, such as `trainings`.
    """
    figure, panel = new_figure(height=0.75 + 0.27 * max(len(names), 2), grid="x")
    for row, (rate, colour) in enumerate(zip(rates, colours, strict=True)):
        if rate.interval is not None:
            draw_bar(panel, row, rate.interval, 0.66, colour)
            _write_beside(panel, f"{rate.k:,}", row)
    _write_beside(panel, counted, -0.8)
    panel.set_yticks(range(len(names)), [figure_text(name) for name in names])
    panel.set_ylim(len(names) - 0.45, -0.55)
    panel.set_xlim(0, 1)
    panel.set_xlabel(title)
    return figure


def outcome_shares_figure(shares: Sequence[OutcomeShare]) -> Figure:
    names = [share.outcome.replace("_", " ") for share in shares]
    colours = [share.kind.colour for share in shares]
    return shares_figure(names, [share.rate for share in shares], colours, "share of trainings", "trainings")


def _write_beside(panel: Axes, text: str, row: float) -> None:
    """Into the right margin, beside a row."""
    place = ("axes fraction", "data")
    panel.annotate(text, (1, row), (4, 0), place, "offset points", va="center", color=GREY)


@house_style()
def composition_figure(composition: Sequence[RoleShare], roles: RoleResults) -> Figure:
    """The share of heads in each role, by layer."""
    layers = list(dict.fromkeys(share.layer for share in composition))
    names = list(dict.fromkeys(share.role for share in composition))
    height = 1.05 + 0.2 * len(layers) * max(len(names), 2)
    figure, panel = new_figure(height=height, grid="x")
    for share in composition:
        if share.rate.interval is not None:
            row = layers.index(share.layer) + 0.7 * ((names.index(share.role) + 0.5) / len(names) - 0.5)
            colour = role_colour(share.role, roles.names)
            draw_bar(panel, row, share.rate.interval, 0.6 / len(names), colour, label=share.role)
    panel.set_yticks(range(len(layers)), [figure_text(roles.layer_title(layer)) for layer in layers])
    panel.set_ylim(len(layers) - 0.5, -0.5)
    panel.set_xlim(0, 1)
    panel.set_xlabel("share of heads at the last probe")
    bars, labels = panel.get_legend_handles_labels()
    legend_below(figure, dict(zip(labels, bars, strict=True)))
    return figure


def curve_figures(
    curves: Sequence[LearningCurve],
    levels: Sequence[ReferenceLevel],
    colours: Mapping[str, str],
) -> list[tuple[str, Figure]]:
    """One figure per outcome: the median loss, a band with the middle half, and the reference levels."""
    common = [curve for curve in curves if curve.outcome != "diverged"]
    highest = sorted(levels, key=lambda level: level.median)[-1:]
    return [
        (
            curve.outcome,
            _curve_figure(
                curve,
                *((levels, common) if curve in common else (highest, [curve])),
                colours.get(curve.outcome, GREY),
            ),
        )
        for curve in curves
    ]


@house_style()
def _curve_figure(
    curve: LearningCurve,
    levels: Sequence[ReferenceLevel],
    together: Sequence[LearningCurve],
    colour: str,
) -> Figure:
    figure, panel = new_figure()
    steps = [point.step for point in curve.points]
    losses = [(point.low, point.median, point.high) for point in curve.points]
    low, median, high = np.minimum(losses, _HIGHEST).T
    panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    panel.plot(steps, median, color=colour, marker=".")
    scale_steps(panel, sorted({point.step for shown_curve in together for point in shown_curve.points}))
    if len(steps) > 1:
        panel.set_xlim(right=max(point.step for shown_curve in together for point in shown_curve.points))
    _scale_losses(panel, together, levels)
    _draw_levels(panel, levels)
    panel.set_ylabel("evaluation loss")
    name = figure_text(curve.outcome.replace("_", " "))
    s = "" if curve.n_trainings == 1 else "s"
    title_panel(panel, f"{name}, {curve.n_trainings:,} training{s}")
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
        label_powers(panel.yaxis)
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
    """A horizontal line each, with its name in the right margin."""
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
            color=GREY,
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 1, "shrinkB": 0},
            annotation_clip=False,
        )


def _apart(places: Sequence[float]) -> list[float]:
    """Moves labels apart until none overlaps another, if possible without leaving the axis."""
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


@house_style()
def metric_figure(metric: MetricCurves, colours: Mapping[str, str]) -> Figure:
    """For each outcome the median and the band with the middle half."""
    figure, panel = new_figure()
    points = [point for curve in metric.curves for point in curve.points]
    for curve in metric.curves:
        steps = [point.step for point in curve.points]
        colour = colours.get(curve.outcome, GREY)
        low, median, high = np.array([(point.low, point.median, point.high) for point in curve.points]).T
        panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
        panel.plot(steps, median, color=colour, marker=".", label=curve.outcome)
    scale_steps(panel, sorted({point.step for point in points}))
    lowest, highest = min(point.low for point in points), max(point.high for point in points)
    if lowest > 0 and highest >= _MANYFOLD * lowest:
        panel.set_yscale("log")
        label_powers(panel.yaxis)
    panel.set_ylabel(figure_text(metric.metric.replace("_", " ")))
    title_panel(panel, figure_text(metric.metric.replace("_", " ")))
    legend_below(figure, {str(line.get_label()): line for line in panel.get_lines()}, columns=2)
    return figure


@house_style()
def front_figure(preferred: Preferred, objectives: Sequence[Measured]) -> Figure:
    """All complete trials by their first two objectives."""
    on_front = {trial.trial for trial in preferred.front or ()}
    points = {
        trial: (told.values[0], told.values[1])
        for trial, told in preferred.told.items()
        if max(map(abs, told.values[:2])) < WORST_LOSS
    }
    behind = [trial for trial in points if trial not in on_front and preferred.told[trial].is_feasible]
    beyond = [trial for trial in points if not preferred.told[trial].is_feasible]
    kinds = (
        ("behind it", behind, GREY, "."),
        ("beyond a constraint", beyond, GREY, "x"),
        ("on the front", [trial for trial in points if trial in on_front], VERMILION, "o"),
    )
    figure, panel = new_figure(height=3.2)
    drawn = {}
    for kind, trials, colour, marker in kinds:
        if trials:
            across, up = zip(*(points[number] for number in trials[:: -(-len(trials) // _MOST_POINTS)]), strict=True)
            drawn[kind] = panel.scatter(across, up, s=24, color=colour, marker=marker)
    for axis, objective, values in zip(("x", "y"), objectives, zip(*points.values(), strict=True), strict=False):
        panel.set(**{f"{axis}label": figure_text(goal_of(objective), 40)})
        if isinstance(objective, LossQuantile) and min(values) > 0:
            panel.set(**{f"{axis}scale": "log"})
    legend_below(figure, drawn, columns=2)
    return figure
