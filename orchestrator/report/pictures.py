"""The drawings of a report: each as an image of the page, and as PNG and SVG for a file."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures.rates import emergence_figure, stuck_rate_figure
from attnsweep.orchestrator.analysis.figures.style import BLUE
from attnsweep.orchestrator.analysis.intervals import rate_label
from attnsweep.orchestrator.analysis.phase.figure import model_figure, residual_figure
from attnsweep.orchestrator.report import figures
from attnsweep.orchestrator.report.head_figures import composition_figure
from attnsweep.orchestrator.report.images import as_png, as_svg, data_uri, inline_svg
from attnsweep.orchestrator.report.sweep_report import SweepReport

Group = Literal["stuck", "phase", "cells", "outcomes", "curves", "composition", "emergence", "sweeps"]


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure.

    Attributes:
        group: The section that it belongs to.
        name: Of its files, without ending.
        alt: What it shows, for those who do not see it.
        svg, png: Its files.
        hover: Whether it says more where the mouse rests, for which it must be part of the page.
    """

    group: Group
    name: str
    alt: str
    svg: str
    png: bytes
    hover: bool = False

    @property
    def source(self) -> Markup:
        """For an `img`."""
        return Markup(data_uri(self.svg))

    @property
    def drawing(self) -> Markup:
        """For the page itself."""
        return Markup(inline_svg(self.svg, self.name))


def draw_sweep(report: SweepReport, prefix: str = "") -> tuple[Picture, ...]:
    """All figures of one sweep.

    Args:
        report: The sweep.
        prefix: Of the files' names.
    """
    taken: set[str] = set()
    return tuple(
        dataclasses.replace(picture, name=_unused(prefix + _file_name(picture.name), taken))
        for picture in _drawn(report)
    )


def draw_overview(reports: Sequence[SweepReport]) -> Picture:
    """The stuck rates of several sweeps."""
    names = [f"{number}. {each.directory.spec.name}" for number, each in enumerate(reports, 1)]
    rates = [each.findings.stuck for each in reports]
    figure = figures.rates_figure(names, rates, [BLUE] * len(names), "stuck rate", "stuck")
    return _picture("sweeps", "stuck_rate_by_sweep", "Stuck rate of each sweep with 95% interval", figure)


def _drawn(report: SweepReport) -> Iterator[Picture]:
    if not report.outcomes:
        return
    shares = "; ".join(f"{each.outcome} {rate_label(each.rate)}" for each in report.outcomes)
    yield _picture(
        "outcomes", "outcomes", f"Share of trainings by outcome: {shares}", figures.outcomes_figure(report.outcomes)
    )
    for rates in report.findings.by_parameter:
        alt = "; ".join(f"{each.label}: {rate_label(each.rate)}" for each in rates.bins)
        name = "stuck_rate_" + rates.title
        yield _picture("stuck", name, f"Stuck rate by {rates.title}: {alt}", stuck_rate_figure([rates]))
    yield from _phase(report)
    for outcome, figure in figures.curve_figures(report.curves, report.levels):
        alt = f"Median and quartiles of eval_loss by step, of the trainings that end as {outcome}"
        yield _picture("curves", f"curves_{outcome}", alt, figure)
    if report.findings.roles is not None and report.composition:
        roles = report.findings.roles
        alt = "Share of heads in each role by layer at the last probe, with 95% intervals"
        yield _picture("composition", "head_roles", alt, composition_figure(report.composition, roles))
        for layer in dict.fromkeys(each.layer for each in roles.emergence):
            title = roles.layer_title(layer)
            alt = f"Share of trainings in which each role has come to stay, by step: {title}"
            yield _picture("emergence", f"emergence_{title}", alt, emergence_figure(roles, layers=[layer]))


def _phase(report: SweepReport) -> Iterator[Picture]:
    if report.regions is None or len(report.regions.axes) < 2:
        return
    axes = " and ".join(axis.parameter for axis in report.regions.axes)
    if report.diagram is not None and report.diagram.surface is not None:
        alt = f"Model of the share that ends stuck, by {axes}: {report.diagram.note}"
        yield _picture("phase", "phase_diagram", alt, model_figure(report.diagram))
        alt = "What the model leaves over: observed and expected stuck share in cells; the table below has the numbers"
        yield _picture("phase", "phase_residuals", alt, residual_figure(report.diagram))
    for measure in ("stuck", "solved"):
        drawn = figures.cells_figure(report.regions, measure)
        svg = as_svg(drawn.figure, drawn.hover)
        alt = f"Share of trainings that end {measure}, by {axes}; the table below has the numbers"
        yield Picture("cells", f"cells_{measure}", alt, svg, as_png(drawn.figure), hover=True)


def _picture(group: Group, name: str, alt: str, figure: Figure) -> Picture:
    return Picture(group, name, alt, as_svg(figure), as_png(figure))


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:60]


def _unused(name: str, taken: set[str]) -> str:
    free = next(
        each for each in (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3))) if each not in taken
    )
    taken.add(free)
    return free
