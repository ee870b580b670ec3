"""The drawings of a report: each as an image of the page, and as PNG and SVG for a file."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup
from matplotlib.figure import Figure

from orchestrator.analysis.figures import stuck_rate_figure
from orchestrator.analysis.intervals import rate_label
from orchestrator.analysis.rates import ParameterRates
from orchestrator.report import figures, head_figures
from orchestrator.report.style import BLUE, LABEL_SIZE, TICK_SIZE, as_png, as_svg, data_uri, figure_text, inline_svg
from orchestrator.report.sweep_report import SweepReport

Group = Literal["stuck", "phase", "outcomes", "curves", "composition", "emergence", "sweeps"]
_LONG = 36
"""Characters of the longest tick label times their number, above which they are slanted."""


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
    def source(self) -> str:
        """For an `img`."""
        return data_uri(self.svg)

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
    figure = figures.rates_figure(names, rates, [BLUE] * len(names), "stuck rate")
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
        yield _picture("stuck", name, f"Stuck rate by {rates.title}: {alt}", _stuck_figure(rates))
    if report.phase is not None and len(report.phase.axes) == 2:
        axes = " and ".join(axis.parameter for axis in report.phase.axes)
        for measure in ("stuck", "solved"):
            drawn = figures.phase_figure(report.phase, measure)
            svg = as_svg(drawn.figure, drawn.hover)
            alt = f"Share of trainings that end {measure}, by {axes}; the table below has the numbers"
            yield Picture("phase", f"phase_{measure}", alt, svg, as_png(drawn.figure), hover=True)
    for outcome, figure in figures.curve_figures(report.curves, report.levels):
        alt = f"Median and quartiles of eval_loss by step, of the trainings that end as {outcome}"
        yield _picture("curves", f"curves_{outcome}", alt, figure)
    if report.findings.roles is not None and report.composition:
        roles, names = report.findings.roles, head_figures.role_names(report.composition)
        alt = "Share of heads in each role by layer at the last probe, with 95% intervals"
        yield _picture("composition", "head_roles", alt, head_figures.composition_figure(report.composition, roles))
        for layer, figure in head_figures.emergence_figures(roles, names):
            alt = f"Share of trainings in which each role has come to stay, by step: {layer}"
            yield _picture("emergence", f"emergence_{layer}", alt, figure)


def _picture(group: Group, name: str, alt: str, figure: Figure) -> Picture:
    return Picture(group, name, alt, as_svg(figure), as_png(figure))


def _stuck_figure(rates: ParameterRates) -> Figure:
    bins = tuple(dataclasses.replace(each, label=figure_text(each.label, 18)) for each in rates.bins)
    figure = stuck_rate_figure([dataclasses.replace(rates, bins=bins, where=figure_text(rates.where, 44))])
    panel = figure.axes[0]
    for axis in (panel.xaxis, panel.yaxis):
        axis.label.set_fontsize(LABEL_SIZE)
    if rates.bins[0].low is None:
        if max(len(each.label) for each in bins) * len(bins) > _LONG:
            panel.tick_params(axis="x", rotation=35, labelsize=TICK_SIZE - 1)
            for label in panel.get_xticklabels():
                label.set_horizontalalignment("right")
                label.set_rotation_mode("anchor")
        figure.set_size_inches(max(figure.get_figwidth(), 1.0 + 0.25 * len(bins)), figure.get_figheight())
    return figure


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:60]


def _unused(name: str, taken: set[str]) -> str:
    free = next(
        each for each in (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3))) if each not in taken
    )
    taken.add(free)
    return free
