"""The figures of a report, each as a part of the page and as PNG and SVG files."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from markupsafe import Markup
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures import BLUE
from attnsweep.orchestrator.analysis.onset import onset_figure
from attnsweep.orchestrator.analysis.rates.by_parameter import SOLVED
from attnsweep.orchestrator.analysis.rates.figures import map_gid, stuck_rate_figure
from attnsweep.orchestrator.analysis.rates.intervals import rate_label
from attnsweep.orchestrator.analysis.role_results import emergence_figure
from attnsweep.orchestrator.report.figures import (
    cells_figure,
    composition_figure,
    curve_figures,
    outcome_shares_figure,
    shares_figure,
)
from attnsweep.orchestrator.report.front import front_figure
from attnsweep.orchestrator.report.images import as_png, as_svg, data_uri, in_both_schemes, inline_svg
from attnsweep.orchestrator.report.measured import metric_figure
from attnsweep.orchestrator.report.regions import Plane
from attnsweep.orchestrator.report.sweep_report import SweepReport

Section = Literal[
    "stuck",
    "phase",
    "by_outcome",
    "cells",
    "outcomes",
    "front",
    "curves",
    "metrics",
    "events",
    "composition",
    "emergence",
    "sweeps",
]


@dataclass(frozen=True)
class Picture:
    """One figure of the report. Its files are rendered when they are first needed.

    Attributes:
        section: The section of the page that shows the figure.
        name: The name of the figure's files, without extension.
        alt: A description for readers who cannot see the figure.
        figure: The figure.
        hover: For the `gid` of an artist, the text that a browser shows when the mouse rests on the artist.
    """

    section: Section
    name: str
    alt: str
    figure: Figure
    hover: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def svg(self) -> str:
        """The text of the figure's SVG file."""
        return as_svg(self.figure, self.hover)

    @property
    def png(self) -> bytes:
        """The bytes of the figure's PNG file."""
        return as_png(self.figure)

    @property
    def source(self) -> Markup:
        """The figure as a URI for the `src` of an `img` element."""
        return Markup(data_uri(in_both_schemes(self.svg)))

    @property
    def drawing(self) -> Markup:
        """The figure as SVG for inlining in the page. Only inlined figures show the texts `hover`."""
        return Markup(inline_svg(in_both_schemes(self.svg), self.name))


def draw_sweep(report: SweepReport, prefix: str = "") -> tuple[Picture, ...]:
    """Draws all figures for the report on one sweep.

    Args:
        report: The sweep.
        prefix: The prefix of the files' names.
    """
    taken: set[str] = set()
    return tuple(
        dataclasses.replace(picture, name=_unused(prefix + _file_name(picture.name), taken))
        for picture in _drawn(report)
    )


def draw_overview(reports: Sequence[SweepReport]) -> Picture:
    """Draws the figure that compares the stuck rates of several sweeps."""
    names = [f"{number}. {report.directory.spec.name}" for number, report in enumerate(reports, 1)]
    rates = [report.results.stuck for report in reports]
    figure = shares_figure(names, rates, [BLUE] * len(names), "stuck rate", "stuck")
    return Picture("sweeps", "stuck_rate_by_sweep", "Stuck rate of each sweep with 95% interval", figure)


def _drawn(report: SweepReport) -> Iterator[Picture]:
    if not report.outcomes:
        return
    shares = "; ".join(f"{share.outcome} {rate_label(share.rate)}" for share in report.outcomes)
    yield Picture(
        "outcomes", "outcomes", f"Share of trainings by outcome: {shares}", outcome_shares_figure(report.outcomes)
    )
    yield from _front(report)
    ending = report.question.ending
    for rates in report.by_parameter:
        alt = "; ".join(f"{bin_.label}: {rate_label(bin_.rate)}" for bin_ in rates.bins)
        label = ending.share_label
        name = f"{label.replace(' ', '_')}_{rates.title}"
        figure = stuck_rate_figure([rates], label=label)
        yield Picture("stuck", name, f"{label.capitalize()} by {rates.title}: {alt}", figure)
    yield from _phase(report)
    colours = {share.outcome: share.colour for share in report.outcomes}
    for outcome, figure in curve_figures(report.curves, report.levels, report.samples, colours):
        alt = f"Median, quartiles and single curves of eval_loss by step, of the trainings that end as {outcome}"
        yield Picture("curves", f"curves_{outcome}", alt, figure)
    for metric in report.metric_curves:
        alt = f"Median and quartiles of {metric.metric} by step, of the trainings of each outcome"
        yield Picture("metrics", f"metric_{metric.metric}", alt, metric_figure(metric, colours))
    for name, title, curves in (
        ("events", "share of trainings in which an event has held", report.events),
        ("delays", "share of trainings by the delay between two events", report.delays),
    ):
        if curves:
            figure = onset_figure(name, curves)
            yield Picture("events", name, title.capitalize() + ", by step, with 95% bands", figure)
    if report.results.roles is not None and report.composition:
        roles = report.results.roles
        alt = "Share of heads in each role by layer at the last probe, with 95% intervals"
        yield Picture("composition", "head_roles", alt, composition_figure(report.composition, roles))
        for layer in dict.fromkeys(emergence.layer for emergence in roles.emergence):
            title = roles.layer_title(layer)
            alt = f"Share of trainings in which each role has emerged, by step: {title}"
            yield Picture("emergence", f"emergence_{title}", alt, emergence_figure(roles, layers=[layer]))


def _front(report: SweepReport) -> Iterator[Picture]:
    preferred, objectives = report.results.preferred, report.directory.spec.objectives
    if preferred.front is not None and preferred.told:
        alt = f"Trials by {objectives[0].label} and {objectives[1].label}: {'; '.join(preferred.sentences())}"
        yield Picture("front", "pareto_front", alt, front_figure(preferred, objectives))


def _phase(report: SweepReport) -> Iterator[Picture]:
    if report.regions is None or report.plane is None:
        return
    axes = " and ".join(axis.parameter for axis in report.regions.axes)
    diagram, ending = report.plane.asked, report.question.ending
    if diagram is not None and diagram.surface is not None:
        alt = f"Model of the share of trainings that {ending.verb}, by {axes}: {diagram.note}"
        yield Picture("phase", "phase_diagram", alt, diagram.plot_model())
        alt = f"Residuals of the model: observed and expected share of {ending.label} in cells; numbers in the table"
        yield Picture("phase", "phase_residuals", alt, diagram.plot_residuals())
    for diagram in report.plane.by_outcome:
        alt = f"Model of the share of trainings that {diagram.ending.verb}, by {axes}: {diagram.note}"
        yield Picture("by_outcome", f"phase_diagram_{diagram.ending.outcome}", alt, diagram.plot_model())
    yield _outcome_map(report.plane, axes)
    for shown_ending in dict.fromkeys((ending, SOLVED)):
        drawn = cells_figure(report.regions, shown_ending)
        alt = f"Share of trainings that {shown_ending.verb}, by {axes}; the table below has the numbers"
        yield Picture("cells", f"cells_{shown_ending.file_label}", alt, drawn.figure, drawn.hover)


def _outcome_map(plane: Plane, axes: str) -> Picture:
    rates, hover = plane.outcomes, {}
    for label, place, cell in zip(rates.groups, rates.places, rates.rates, strict=True):
        shares = "; ".join(f"{name} {rate_label(rate)}" for name, rate in zip(rates.outcomes, cell, strict=True))
        hover[map_gid(place)] = f"{label}: {shares}"
    alt = f"The most frequent outcome, by {axes}"
    return Picture("cells", "outcome_map", alt, rates.plot_map(), hover)


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:60]


def _unused(name: str, taken: set[str]) -> str:
    free = next(
        file for file in (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3))) if file not in taken
    )
    taken.add(free)
    return free
