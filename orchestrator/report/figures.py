"""The figures of a report."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from attnsweep.orchestrator.analysis.labels import (
    BLUE,
    GREY,
    VERMILION,
    bin_label,
    number_label,
    plain_label,
    role_colour,
)
from attnsweep.orchestrator.analysis.learning_curves import LearningCurve
from attnsweep.orchestrator.analysis.onset import OnsetCurve
from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram
from attnsweep.orchestrator.analysis.phase.surface import PlaneAxis, Surface
from attnsweep.orchestrator.analysis.rates.by_parameter import Ending, ParameterRates
from attnsweep.orchestrator.analysis.rates.intervals import Rate, decimals, rate_label
from attnsweep.orchestrator.analysis.results import Preferred
from attnsweep.orchestrator.analysis.role_emergence import RoleEmergence
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
from attnsweep.orchestrator.report.facts import ReferenceLevel
from attnsweep.orchestrator.report.regions import Cell, Regions
from attnsweep.orchestrator.report.sweep_report import SweepReport
from attnsweep.search_spaces.dimensions import Float
from attnsweep.search_spaces.measured import WORST_LOSS, LossQuantile, Measured, goal_of

Section = Literal["phase", "front", "rates", "curves", "metrics", "events", "heads", "sweeps"]
_STUCK_COLOUR = "#6a51a3"
_LINE_COLOURS = (BLUE, VERMILION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MOST_DOTS = 400
"""Up to this many trials are drawn on the surface; the figure below the phase diagram has all."""
_MOST_WRITTEN = 60
"""Up to this many cells have their share written in."""
_MOST_COUNTED = 10
_HIGHEST, _BEYOND_LEVELS, _LEVELS_APART, _DECADES, _MANYFOLD = 1e30, 30, 0.06, 1.3, 100.0


@dataclass(frozen=True, slots=True)
class Picture:
    """`name` is that of its file."""

    section: Section
    name: str
    svg: str


def draw_sweep(report: SweepReport, prefix: str = "") -> tuple[Picture, ...]:
    """Each has a file name of its own, which begins with `prefix`."""
    pictures: dict[str, Picture] = {}
    for picture in _drawn(report):
        name = prefix + re.sub(r"[^A-Za-z0-9]+", "_", picture.name).strip("_")[:60]
        names = itertools.chain([name], (f"{name}_{at}" for at in itertools.count(2)))
        free = next(each for each in names if each not in pictures)
        pictures[free] = replace(picture, name=free)
    return tuple(pictures.values())


def draw_overview(reports: Sequence[SweepReport]) -> Picture:
    """The stuck rates of several sweeps."""
    names = [f"{number}. {report.directory.spec.name}" for number, report in enumerate(reports, 1)]
    chart = Chart(places_axis(names), share_axis("stuck rate"), "stuck rate by sweep", width=max(360, 60 * len(names)))
    for at, report in enumerate(reports):
        _interval(chart, (at, at), report.results.stuck, names[at])
    return Picture("sweeps", "stuck_rate_by_sweep", chart.svg("Stuck rate of each sweep with 95% interval"))


def _drawn(report: SweepReport) -> Iterator[Picture]:
    if not report.outcomes:
        return
    preferred, ending = report.results.preferred, report.question.ending
    if preferred.front is not None and preferred.told:
        yield Picture("front", "pareto_front", _front(preferred, report.directory.spec.objectives))
    colours = {share.outcome: share.kind.colour for share in report.outcomes}
    colour = colours.get(ending.outcome, _STUCK_COLOUR)
    if report.diagram is not None and report.diagram.surface is not None:
        yield Picture("phase", "phase_diagram", _phase(report.diagram, report.diagram.surface, colour))
    if report.regions is not None and len(report.regions.axes) > 1:
        yield Picture("phase", "cells", _mosaic(report.regions, colours))
    for rates in report.drawn:
        name = f"{ending.share_label}_{rates.title}"
        yield Picture("rates", name, _rates(rates, ending, colour))
    for curve in report.curves:
        yield Picture("curves", f"curves_{curve.outcome}", _learning(curve, report.curves, report.levels, colours))
    for metric in report.metric_curves:
        yield Picture("metrics", f"metric_{metric.metric}", _metric(metric.metric, metric.curves, colours))
    for name, curves in (("events", report.events), ("delays between events", report.delays)):
        if curves:
            named = {curve.label: (colour, curve) for curve, colour in zip(curves, itertools.cycle(_LINE_COLOURS))}
            yield Picture("events", name, _reached(name, "share of trainings", named))
    if report.results.roles is not None and report.composition:
        roles = report.results.roles
        layers = [roles.layer_title(layer) for layer in dict.fromkeys(each.layer for each in report.composition)]
        yield Picture("heads", "head_roles", _composition(report, layers))
        for layer, inside in itertools.groupby(
            sorted(roles.emergence, key=lambda each: -1 if each.layer is None else each.layer), lambda each: each.layer
        ):
            title = roles.layer_title(layer)
            emerged = {each.role: (role_colour(each.role, roles.names), each) for each in inside}
            yield Picture("heads", f"emergence_{title}", _reached(title, "share with the role", emerged))


def _interval(chart: Chart, x: tuple[float, float], rate: Rate, title: str, colour: str = BLUE) -> None:
    if rate.interval is not None:
        chart.interval(x, rate.interval, colour, f"{title}: {rate_label(rate)} trainings")


def _plane_axis(axis: PlaneAxis) -> Axis:
    made = log_axis if axis.log else linear_axis
    return made(axis.low, axis.high, plain_label(axis.name))


def _phase(diagram: PhaseDiagram, surface: Surface, colour: str) -> str:
    """The surface in steps of a tenth, its border and the border's band, and trials filled by their own shares."""
    from contourpy import FillType, contour_generator

    ending, trials = diagram.ending, diagram.trials
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
    if len(trials.x) <= _MOST_DOTS:
        for x, y, n, k in zip(*(each.tolist() for each in (trials.x, trials.y, trials.n, trials.k)), strict=True):
            title = f"{diagram.x.name} {x:.3g}, {diagram.y.name} {y:.3g}: {k:.0f} of {n:.0f} {ending.label}"
            chart.dot(x, y, shade(colour, k / n), title)
    legend = {f"share {share / 10 + 0.05:.2f}": shade(colour, share / 10 + 0.05) for share in (0, 3, 6, 9)}
    border = {f"half {ending.verb}; dashed: its 95% band": VERMILION} if diagram.contour() else {}
    return chart.svg(f"Model of the share of trainings that {ending.verb}: {diagram.note}", legend | border)


def _bin_axis(rates: ParameterRates) -> Axis:
    """Labels a range's edges, and a choice's or a whole number's place."""
    if not isinstance(rates.dimension, Float):
        return places_axis([bin_label(bin_.label) for bin_ in rates.bins], plain_label(rates.parameter))
    ends = [bin_.low for bin_ in rates.bins] + [rates.bins[-1].high]
    edges = [number_label(end) for end in ends if end is not None]
    return places_axis([bin_.label for bin_ in rates.bins], plain_label(rates.parameter), edges=edges)


def _mosaic(regions: Regions, colours: Mapping[str, str]) -> str:
    """Each cell is divided between its outcomes."""
    across, up = regions.axes
    high = len(up.bins)
    chart = Chart(_bin_axis(across), _bin_axis(up), "outcomes in cells", 440, min(max(300, 80 + 42 * high), 440))
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
        if cell.asked.interval is not None and len(regions.cells) <= _MOST_WRITTEN:
            share, least, most = cell.asked.interval
            chart.cell((column - 0.3, column + 0.3), (row - 0.2, row + 0.2), "#ffffffd0", title)
            chart.note(column, row, f"{share:.{decimals(least, most)}f}", on="#ffffff")
    legend = {name: colours[name] for name in colours if any(name in cell.outcomes for cell in regions.cells)}
    return chart.svg(f"Shares of outcomes in cells of two parameters; numbers: {ending.label} share", legend)


def _cell_title(regions: Regions, cell: Cell) -> str:
    places = ", ".join(f"{name} {label}" for name, label in regions.labels(cell))
    shares = "".join(f"; {name} {rate.share:.2f}" for name, rate in cell.outcomes.items() if rate.share)
    asked = f"{regions.question.ending.label} {rate_label(cell.asked)} trainings, {cell.n_trials} trials"
    return f"{places}: {asked}{shares}"


def _rates(rates: ParameterRates, ending: Ending, colour: str) -> str:
    label = f"{plain_label(rates.parameter)} ({rates.where})" if rates.where else plain_label(rates.parameter)
    axis = places_axis([bin_label(bin_.label) for bin_ in rates.bins], label)
    ends = [(float(at), float(at)) for at in range(len(rates.bins))]
    if isinstance(rates.dimension, Float):
        ends = [(bin_.low, bin_.high) for bin_ in rates.bins if bin_.low is not None and bin_.high is not None]
        axis = (log_axis if rates.dimension.log else linear_axis)(ends[0][0], ends[-1][1], label)
    chart = Chart(axis, share_axis(ending.share_label))
    for (low, high), bin_ in zip(ends, rates.bins, strict=True):
        _interval(chart, (low, high), bin_.rate, f"{bin_.label}, {bin_.n_trials} trials", colour)
        if bin_.n_trials and len(rates.bins) <= _MOST_COUNTED:
            chart.note(
                math.sqrt(low * high) if axis.scale is np.log10 else (low + high) / 2, 1, f"{bin_.n_trials:,}", dy=-5
            )
    numbers = "; ".join(f"{bin_.label}: {rate_label(bin_.rate)}" for bin_ in rates.bins)
    return chart.svg(f"{ending.share_label} by {rates.title}: {numbers}")


def _value_axis(values: Iterable[float], label: str, manyfold: float, levels: Sequence[float] = ()) -> Axis:
    """Logarithmic if the values, all positive, span the factor; not far beyond the levels."""
    finite = [min(value, _HIGHEST) for value in (*values, *levels) if math.isfinite(value)]
    low, high = min(finite), max(finite)
    if known := [level for level in levels if level > 0]:
        low, high = max(low, min(known) / _BEYOND_LEVELS), min(high, max(known) * _BEYOND_LEVELS)
    if low > 0 and high >= manyfold * low:
        return log_axis(low / (room := (high / low) ** 0.04), high * room, label)
    room = 0.05 * (high - low)
    return linear_axis(low - room, high + room, label)


def _learning(
    curve: LearningCurve, curves: Sequence[LearningCurve], levels: Sequence[ReferenceLevel], colours: Mapping[str, str]
) -> str:
    is_diverged = curve.outcome == "diverged"
    together = [curve] if is_diverged else [each for each in curves if each.outcome != "diverged"]
    points = [point for each in together for point in each.points]
    values = [value for point in points for value in (point.low, point.high)]
    shown = [] if is_diverged else [level for level in levels if math.isfinite(level.median)]
    y = _value_axis(values, "evaluation loss", 10**_DECADES, [level.median for level in shown])
    s = "" if curve.n_trainings == 1 else "s"
    title = f"{curve.outcome.replace('_', ' ')}, {curve.n_trainings:,} training{s}"
    chart = Chart(step_axis(max(point.step for point in points)), y, title, right=84)
    near: list[tuple[float, str]] = []
    for level in sorted(shown, key=lambda level: level.median):
        name = level.name.replace("_", " ")
        if near and y.at(level.median) - y.at(near[-1][0]) < _LEVELS_APART:
            near[-1] = (near[-1][0], f"{near[-1][1]}, {name}")
        elif y.low <= level.median <= y.high:
            near.append((level.median, name))
    for median, names in near:
        chart.level(median, names)
    _quartiles(chart, curve, colours)
    return chart.svg(f"Median and quartiles of eval_loss by step, of the trainings that end as {curve.outcome}")


def _quartiles(chart: Chart, curve: LearningCurve, colours: Mapping[str, str]) -> None:
    steps = [point.step for point in curve.points]
    low, median, high = np.minimum([(each.low, each.median, each.high) for each in curve.points], _HIGHEST).T
    colour = colours.get(curve.outcome, GREY)
    chart.band(steps, low, high, colour)
    chart.line(steps, median, colour)


def _metric(metric: str, curves: Sequence[LearningCurve], colours: Mapping[str, str]) -> str:
    points = [point for curve in curves for point in curve.points]
    y = _value_axis([value for point in points for value in (point.low, point.high)], "", _MANYFOLD)
    chart = Chart(step_axis(max(point.step for point in points)), y, metric.replace("_", " "))
    for curve in curves:
        _quartiles(chart, curve, colours)
    legend = {curve.outcome: colours.get(curve.outcome, GREY) for curve in curves}
    return chart.svg(f"Median and quartiles of {metric} by step, of the trainings of each outcome", legend)


def _reached(title: str, label: str, curves: Mapping[str, tuple[str, OnsetCurve | RoleEmergence]]) -> str:
    """The share of trainings that have reached something, by step, with 95% bands."""
    last = max((point.step for _, each in curves.values() for point in each.curve), default=1)
    chart = Chart(step_axis(last), share_axis(label), f"{title}: 95% bands")
    for colour, each in curves.values():
        steps = np.repeat([point.step for point in each.curve], 2)[1:]
        shares = np.array([(point.share, point.most, point.low, point.high) for point in each.curve]).reshape(-1, 4)
        share, most, low, high = np.repeat(shares, 2, axis=0)[: len(steps)].T
        chart.band(steps, low, high, colour)
        chart.band(steps, share, most, colour, 0.4)
        chart.line(steps, share, colour)
    return chart.svg(f"{title}: {label}, by step", {name: colour for name, (colour, _) in curves.items()})


def _composition(report: SweepReport, layers: Sequence[str]) -> str:
    names = list(dict.fromkeys(share.role for share in report.composition))
    chart = Chart(places_axis(layers), share_axis("share of heads"), "roles at the last probe")
    places = {layer: at for at, layer in enumerate(dict.fromkeys(share.layer for share in report.composition))}
    for share in report.composition:
        x = places[share.layer] + 0.7 * ((names.index(share.role) + 0.5) / len(names) - 0.5)
        _interval(chart, (x, x), share.rate, share.role, role_colour(share.role, names))
    return chart.svg(
        "Share of heads in each role by layer at the last probe, with 95% intervals",
        {name: role_colour(name, names) for name in names},
    )


def _front(preferred: Preferred, objectives: Sequence[Measured]) -> str:
    """All complete trials by their first two objectives."""
    on_front = {trial.trial for trial in preferred.front or ()}
    told = {
        trial: each for trial, each in preferred.told.items() if max(map(abs, each.values[:2])) < WORST_LOSS
    } or dict(preferred.told)
    x, y = (
        _value_axis(
            [each.values[at] for each in told.values()],
            goal_of(objective),
            10**_DECADES if isinstance(objective, LossQuantile) else math.inf,
        )
        for at, objective in enumerate(objectives[:2])
    )
    chart = Chart(x, y, "Pareto front", 440, 330)
    for trial, each in sorted(told.items(), key=lambda pair: pair[0] in on_front):
        colour = VERMILION if trial in on_front else "#c8c8c8" if each.is_feasible else "none"
        chart.dot(each.values[0], each.values[1], colour, f"trial {trial}: {each.values[0]:.4g}, {each.values[1]:.4g}")
    legend = {"on the front": VERMILION, "behind it": "#c8c8c8"} | (
        {"empty: beyond a constraint": "none"} if not all(each.is_feasible for each in told.values()) else {}
    )
    alt = f"Trials by {objectives[0].label} and {objectives[1].label}: {'; '.join(preferred.sentences())}"
    return chart.svg(alt, legend)
