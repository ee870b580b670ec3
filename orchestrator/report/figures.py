"""The figures of a report."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from attnsweep.orchestrator.analysis.labels import (
    BLUE,
    GREY,
    VERMILION,
    number_label,
    parameter_label,
    role_colour,
)
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram
from attnsweep.orchestrator.analysis.phase.surface import PlaneAxis, Surface
from attnsweep.orchestrator.analysis.rates.by_parameter import Ending
from attnsweep.orchestrator.analysis.rates.intervals import Rate, rate_label, share_label
from attnsweep.orchestrator.analysis.role_emergence import layer_names_of, layer_title
from attnsweep.orchestrator.analysis.tables import Row
from attnsweep.orchestrator.report.charts import (
    Axis,
    Chart,
    linear_axis,
    log_axis,
    places_axis,
    shade,
    share_axis,
    step_axis,
)
from attnsweep.orchestrator.report.regions import Axis as CellAxis
from attnsweep.orchestrator.report.regions import Cell, Regions
from attnsweep.orchestrator.report.sweep_report import SweepReport

Section = Literal["phase", "rates", "curves", "metrics", "events", "heads"]
_STUCK_COLOUR = "#6a51a3"
_LINE_COLOURS = (BLUE, VERMILION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MAX_WRITTEN = 60
"""Up to so many cells have their share written in."""
_MAX_COUNTED = 10
"""Up to so many bins have their number of trials written in."""
_MAX_VALUE = 1e30
"""Larger losses, infinite ones too, are drawn there."""
_LEVEL_ROOM, _LEVEL_DISTANCE = 30, 0.06
"""A loss axis goes at most by this factor beyond the outer levels; closer levels (in parts of the axis) share a label.
"""
_LOSS_LOG_RATIO, _METRIC_LOG_RATIO = 10**1.3, 100.0
"""An axis of positive values is logarithmic from this ratio of the largest to the smallest on."""


@dataclass(frozen=True, slots=True)
class Picture:
    """`name`: of its file."""

    section: Section
    name: str
    svg: str


def draw_sweep(report: SweepReport, prefix: str = "") -> tuple[Picture, ...]:
    """Each with a file name of its own, which begins with `prefix`."""
    pictures: dict[str, Picture] = {}
    for picture in _drawn(report):
        name = prefix + re.sub(r"[^A-Za-z0-9]+", "_", picture.name).strip("_")[:60]
        names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        free = next(each for each in names if each not in pictures)
        pictures[free] = replace(picture, name=free)
    return tuple(pictures.values())


def _drawn(report: SweepReport) -> Iterator[Picture]:
    outcomes, ending = report.tables["outcomes"], report.question.ending
    if not outcomes:
        return
    colours = {row["outcome"]: row["kind"].colour for row in outcomes}
    colour = colours.get(ending.outcome, _STUCK_COLOUR)
    if report.diagram is not None and report.diagram.surface is not None:
        yield Picture("phase", "phase_diagram", _phase(report.diagram, report.diagram.surface, colour))
    if report.regions is not None and len(report.regions.axes) > 1:
        yield Picture("phase", "cells", _mosaic(report.regions, colours))
    for title in report.drawn:
        yield Picture("rates", f"{ending.share_label}_{title}", _rates(title, report.rates[title], ending, colour))
    curves, levels = report.tables["curves"], report.tables["levels"]
    for row in curves:
        yield Picture("curves", f"curves_{row['outcome']}", _learning(row, curves, levels, colours))
    for row in report.tables["metrics"]:
        yield Picture("metrics", f"metric_{row['metric']}", _metric(row["metric"], row["curves"], colours))
    for name, is_delay in (("events", False), ("delays between events", True)):
        rows = (row for row in report.tables["events"] if row["is_delay"] == is_delay)
        named = {row["event"]: (line, row["curve"]) for row, line in zip(rows, itertools.cycle(_LINE_COLOURS))}
        if named:
            yield Picture("events", name, _reached(name, "share of trainings", named))
    titles, roles = layer_names_of(report.directory.spec.workload), report.tables["roles"]
    names = list(dict.fromkeys(row["role"] for row in roles))
    for layer in sorted({row["layer"] for row in roles}):
        title, inside = layer_title(titles, layer), [row for row in roles if row["layer"] == layer]
        emerged = {row["role"]: (role_colour(row["role"], names), row["curve"]) for row in inside}
        yield Picture("heads", f"emergence_{title}", _reached(title, "share with the role", emerged))


def _plane_axis(axis: PlaneAxis) -> Axis:
    made = log_axis if axis.log else linear_axis
    return made(axis.low, axis.high, parameter_label(axis.name))


def _phase(diagram: PhaseDiagram, surface: Surface, colour: str) -> str:
    """The surface in steps of a tenth, its border and the border's band."""
    from contourpy import FillType, contour_generator

    ending = diagram.ending
    chart = Chart(_plane_axis(diagram.x), _plane_axis(diagram.y), f"fitted share that {ending.verb}", 440, 360)
    axis = np.linspace(-1, 1, len(surface.grid[0]))

    def real(points: np.ndarray) -> np.ndarray:
        return np.column_stack([diagram.x.values(points[:, 0]), diagram.y.values(points[:, 1])])

    filled = contour_generator(axis, axis, surface.grid[2], fill_type=FillType.OuterOffset)
    for low in range(10):
        for points, offsets in zip(*filled.filled(low / 10, 1.01), strict=True):
            rings = [real(points[start:end]) for start, end in itertools.pairwise(offsets.tolist())]
            chart.area(rings, shade(colour, low / 10 + 0.05))
    for line in diagram.contour():
        chart.line(line[:, 0], line[:, 1], VERMILION, width=2.2)
    depth = surface.border_depth()
    if diagram.contour() and (depth >= 0).any():
        for points in contour_generator(axis, axis, depth).lines(0.0):
            edge = real(np.asarray(points))
            chart.line(edge[:, 0], edge[:, 1], VERMILION, dash="4 3", width=1)
    legend = {f"share {share / 10 + 0.05:.2f}": shade(colour, share / 10 + 0.05) for share in (0, 3, 6, 9)}
    border = {f"half {ending.verb}; dashed: its 95% band": VERMILION} if diagram.contour() else {}
    return chart.svg(f"Model of the share of trainings that {ending.verb}: {diagram.note}", legend | border)


def _cell_axis(axis: CellAxis) -> Axis:
    """Labels a range's edges, and a choice's or a whole number's place."""
    return places_axis(axis.labels, parameter_label(axis.parameter), edges=[number_label(edge) for edge in axis.edges])


def _mosaic(regions: Regions, colours: Mapping[str, str]) -> str:
    """Each cell is divided between its outcomes."""
    across, up = regions.axes
    high = len(up.labels)
    chart = Chart(_cell_axis(across), _cell_axis(up), "outcomes in cells", 440, min(max(300, 80 + 42 * high), 440))
    ending = regions.question.ending
    for cell in regions.cells:
        column, row = cell.place
        title = _cell_title(regions, cell)
        left, span, bottom, top = column - 0.47, 0.94, row - 0.46, row + 0.46
        if not cell.n_trials:
            chart.cell((left, left + span), (bottom, top), "none", title, stroke="var(--line,#d9d9d9)")
        for outcome, rate in cell.outcomes.items():
            part = span * (rate.share or 0)
            if part:
                chart.cell((left, left + part), (bottom, top), colours.get(outcome, GREY), title)
                left += part
        if cell == regions.best:
            chart.cell((column - 0.49, column + 0.49), (row - 0.49, row + 0.49), "none", stroke="currentColor")
        if cell.asked.interval is not None and len(regions.cells) <= _MAX_WRITTEN:
            chart.cell((column - 0.3, column + 0.3), (row - 0.2, row + 0.2), "#ffffffd0", title)
            chart.note(column, row, share_label(cell.asked).partition(" ")[0], colour="#1a1a1a")
    legend = {name: colours[name] for name in colours if any(name in cell.outcomes for cell in regions.cells)}
    return chart.svg(f"Shares of outcomes in cells of two parameters; numbers: {ending.label} share", legend)


def _cell_title(regions: Regions, cell: Cell) -> str:
    places = ", ".join(f"{name} {label}" for name, label in regions.labels(cell))
    shares = "".join(f"; {name} {rate.share:.2f}" for name, rate in cell.outcomes.items() if rate.share)
    asked = f"{regions.question.ending.label} {rate_label(cell.asked)} trainings, {cell.n_trials} trials"
    return f"{places}: {asked}{shares}"


def _rates(title: str, rows: Sequence[Row], ending: Ending, colour: str) -> str:
    label, scale = title.replace(name := rows[0]["parameter"], parameter_label(name), 1), rows[0]["scale"]
    axis = places_axis([row["bin"].replace("..", "–") for row in rows], label)
    ends = [(float(place), float(place)) for place in range(len(rows))]
    if scale in ("log", "linear"):
        ends = [(row["low_end"], row["high_end"]) for row in rows]
        axis = (log_axis if scale == "log" else linear_axis)(ends[0][0], ends[-1][1], label)
    chart = Chart(axis, share_axis(ending.share_label))
    for (low, high), row in zip(ends, rows, strict=True):
        if (rate := Rate.of(row)).interval is not None:
            hint = f"{row['bin']}, {row['n_trials']} trials: {rate_label(rate)} trainings"
            chart.interval((low, high), rate.interval, colour, hint)
        if row["n_trials"] and len(rows) <= _MAX_COUNTED:
            middle = math.sqrt(low * high) if scale == "log" else (low + high) / 2
            chart.note(middle, 1, f"{row['n_trials']:,}", dy=-5)
    numbers = "; ".join(f"{row['bin']}: {rate_label(Rate.of(row))}" for row in rows)
    return chart.svg(f"{ending.share_label} by {title}: {numbers}")


def _value_axis(points: Sequence[Row], label: str, log_ratio: float, levels: Sequence[float] = ()) -> Axis:
    """For points and levels; logarithmic if all are positive and span `log_ratio`."""
    values = [*levels, *(point[end] for point in points for end in ("low", "high"))]
    finite = [min(value, _MAX_VALUE) for value in values if math.isfinite(value)]
    low, high = min(finite), max(finite)
    if known := [level for level in levels if level > 0]:
        low, high = max(low, min(known) / _LEVEL_ROOM), min(high, max(known) * _LEVEL_ROOM)
    if low > 0 and high >= log_ratio * low:
        return log_axis(low / (room := (high / low) ** 0.04), high * room, label)
    room = 0.05 * (high - low)
    return linear_axis(low - room, high + room, label)


def _learning(row: Row, rows: Sequence[Row], levels: Sequence[Row], colours: Mapping[str, str]) -> str:
    outcome, curve = row["outcome"], row["curve"]
    is_diverged = outcome == "diverged"
    on_same_axes = [row] if is_diverged else [each for each in rows if each["outcome"] != "diverged"]
    points = [point for each in on_same_axes for point in each["curve"]]
    shown = [] if is_diverged else sorted(level["median"] for level in levels if math.isfinite(level["median"]))
    y = _value_axis(points, "evaluation loss", _LOSS_LOG_RATIO, shown)
    n = max(point["n"] for point in curve)
    title = f"{outcome.replace('_', ' ')}, {n:,} training{'s' * (n != 1)}"
    chart = Chart(step_axis(max(point["step"] for point in points)), y, title, right=84)
    labelled: list[tuple[float, str]] = []
    for median in dict.fromkeys(shown):
        name = ", ".join(level["name"].replace("_", " ") for level in levels if level["median"] == median)
        if labelled and y.at(median) - y.at(labelled[-1][0]) < _LEVEL_DISTANCE:
            labelled[-1] = (labelled[-1][0], f"{labelled[-1][1]}, {name}")
        elif y.low <= median <= y.high:
            labelled.append((median, name))
    for median, names in labelled:
        chart.level(median, names)
    _quartiles(chart, curve, colours.get(outcome, GREY))
    return chart.svg(f"Median and quartiles of eval_loss by step, of the trainings that end as {outcome}")


def _quartiles(chart: Chart, curve: Sequence[Row], colour: str) -> None:
    steps = [point["step"] for point in curve]
    low, median, high = np.minimum([(each["low"], each["median"], each["high"]) for each in curve], _MAX_VALUE).T
    chart.band(steps, low, high, colour)
    chart.line(steps, median, colour)


def _metric(metric: str, rows: Sequence[Row], colours: Mapping[str, str]) -> str:
    points = [point for row in rows for point in row["curve"]]
    y = _value_axis(points, "", _METRIC_LOG_RATIO)
    chart = Chart(step_axis(max(point["step"] for point in points)), y, metric.replace("_", " "))
    legend = {row["outcome"]: colours.get(row["outcome"], GREY) for row in rows}
    for row in rows:
        _quartiles(chart, row["curve"], legend[row["outcome"]])
    return chart.svg(f"Median and quartiles of {metric} by step, of the trainings of each outcome", legend)


def _reached(title: str, label: str, curves: Mapping[str, tuple[str, Sequence[Row]]]) -> str:
    """The share of trainings that have reached something, by step, with 95% bands."""
    last = max((point["step"] for _, curve in curves.values() for point in curve), default=1)
    chart = Chart(step_axis(last), share_axis(label), f"{title}: 95% bands")
    for colour, curve in curves.values():
        steps = np.repeat([point["step"] for point in curve], 2)[1:]
        names = ("share", "most", "low", "high")
        shares = np.array([[point[name] for name in names] for point in curve]).reshape(-1, len(names))
        share, most, low, high = np.repeat(shares, 2, axis=0)[: len(steps)].T
        chart.band(steps, low, high, colour)
        chart.band(steps, share, most, colour, 0.4)
        chart.line(steps, share, colour)
    return chart.svg(f"{title}: {label}, by step", {name: colour for name, (colour, _) in curves.items()})
