"""The figures of a report, each as a part of the page and as PNG and SVG files."""

import base64
import dataclasses
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal
from xml.etree import ElementTree

import matplotlib
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
    front_figure,
    metric_figure,
    outcome_shares_figure,
    shares_figure,
)
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
_SVG = "http://www.w3.org/2000/svg"
_RASTER_DPI = 60
"""The resolution of smooth surfaces inside an SVG: low, because browsers smooth them and a report has many."""
_DARK = """
@media screen and (prefers-color-scheme: dark) {
[id$="patch_1"] > path, [id*="axes_"] > g:first-child > path[style*="fill: #ffffff"] { fill: #16181b !important; }
[id*="text_"] g { fill: #ececec !important; }
[style*="stroke: #000000"] { stroke: #ababab !important; }
[style*="stroke: #595959"] { stroke: #ababab !important; }
[style*="stroke: #e6e6e6"] { stroke: #33363b !important; }
[style*="fill: #595959"] { fill: #ababab !important; }
}
"""
"""Colours for dark mode. The selectors are Matplotlib's names for parts of an SVG; the colours are the page's."""


@dataclass(frozen=True)
class Picture:
    """One figure. Its files are rendered when they are first needed.

    Attributes:
        hover: For the `gid` of an artist, the text that a browser shows when the mouse rests on the artist.
    """

    section: Section
    name: str
    alt: str
    figure: Figure
    hover: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def svg(self) -> str:
        """With letters as outlines. Rendering it again gives the same bytes."""
        _lay_out(self.figure)
        sink = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": "attnsweep", "svg.fonttype": "path"}):
            self.figure.savefig(sink, format="svg", dpi=_RASTER_DPI, metadata={"Date": None, "Creator": None})
        ElementTree.register_namespace("", _SVG)
        ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
        root = ElementTree.fromstring(sink.getvalue())
        for metadata in root.findall(f"{{{_SVG}}}metadata"):
            root.remove(metadata)
        for group in root.iter(f"{{{_SVG}}}g"):
            if words := self.hover.get(group.get("id", "")):
                title = ElementTree.Element(f"{{{_SVG}}}title")
                title.text = words
                group.insert(0, title)
        return ElementTree.tostring(root, encoding="unicode")

    @property
    def png(self) -> bytes:
        return as_png(self.figure)

    @property
    def source(self) -> Markup:
        """A data URI for the `src` of an `img` element."""
        return Markup("data:image/svg+xml;base64," + base64.b64encode(self._in_both_schemes.encode()).decode())

    @property
    def drawing(self) -> Markup:
        """SVG inside the page's HTML, the only form in which the texts in `hover` appear under the pointer."""
        own = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{self.name}-", self._in_both_schemes)
        for size in ("height", "width"):
            own = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", own, count=1)
        return Markup(own)

    @property
    def _in_both_schemes(self) -> str:
        return self.svg.replace("</style>", f"{_DARK}</style>", 1)


def as_png(figure: Figure) -> bytes:
    """For slides."""
    _lay_out(figure)
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi="figure", metadata={"Software": None})
    return sink.getvalue()


def _lay_out(figure: Figure) -> None:
    """Runs the layout engine once for a figure that is saved to several files."""
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        with matplotlib.rc_context({"figure.constrained_layout.use": False, "figure.autolayout": False}):
            figure.set_layout_engine(None)


def draw_sweep(report: SweepReport, prefix: str = "") -> tuple[Picture, ...]:
    """Each has a file name of its own, which begins with `prefix`."""
    pictures: dict[str, Picture] = {}
    for picture in _drawn(report):
        name = prefix + re.sub(r"[^A-Za-z0-9]+", "_", picture.name).strip("_")[:60]
        free = name
        for number in itertools.count(2):
            if free not in pictures:
                break
            free = f"{name}_{number}"
        pictures[free] = dataclasses.replace(picture, name=free)
    return tuple(pictures.values())


def draw_overview(reports: Sequence[SweepReport]) -> Picture:
    """The stuck rates of several sweeps."""
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
    preferred, objectives = report.results.preferred, report.directory.spec.objectives
    if preferred.front is not None and preferred.told:
        alt = f"Trials by {objectives[0].label} and {objectives[1].label}: {'; '.join(preferred.sentences())}"
        yield Picture("front", "pareto_front", alt, front_figure(preferred, objectives))
    ending = report.question.ending
    for rates in report.drawn:
        alt = "; ".join(f"{bin_.label}: {rate_label(bin_.rate)}" for bin_ in rates.bins)
        label = ending.share_label
        name = f"{label.replace(' ', '_')}_{rates.title}"
        figure = stuck_rate_figure([rates], label=label)
        yield Picture("stuck", name, f"{label.capitalize()} by {rates.title}: {alt}", figure)
    yield from _phase(report)
    colours = {share.outcome: share.kind.colour for share in report.outcomes}
    for outcome, figure in curve_figures(report.curves, report.levels, colours):
        alt = f"Median and quartiles of eval_loss by step, of the trainings that end as {outcome}"
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
        alt = f"Share of trainings that {shown_ending.verb}, by {axes}; the table below has the numbers"
        yield Picture("cells", f"cells_{shown_ending.file_label}", alt, *cells_figure(report.regions, shown_ending))


def _outcome_map(plane: Plane, axes: str) -> Picture:
    rates, hover = plane.outcomes, {}
    for label, place, cell in zip(rates.groups, rates.places, rates.rates, strict=True):
        shares = "; ".join(f"{name} {rate_label(rate)}" for name, rate in zip(rates.outcomes, cell, strict=True))
        hover[map_gid(place)] = f"{label}: {shares}"
    alt = f"The most frequent outcome, by {axes}"
    return Picture("cells", "outcome_map", alt, rates.plot_map(), hover)
