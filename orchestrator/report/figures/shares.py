"""Figures of shares of trainings: one row each."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures.panels import new_figure
from attnsweep.orchestrator.analysis.figures.style import GREY, OUTCOME_COLOURS, draw_bar, figure_text, house_style
from attnsweep.orchestrator.analysis.rates.intervals import Rate
from attnsweep.orchestrator.report.facts import OutcomeShare


@house_style()
def shares_figure(
    names: Sequence[str], rates: Sequence[Rate], colours: Sequence[str], title: str, counted: str
) -> Figure:
    """Shares of trainings with 95% intervals, one row each.

    Args:
        names: The names of the rows, from top to bottom.
        rates: The rate of each row.
        colours: The colour of each row.
        title: The title of the axis.
        counted: What the numbers beside the rows count, such as `trainings`.
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
    """The share of trainings with each outcome."""
    names = [each.outcome.replace("_", " ") for each in shares]
    colours = [OUTCOME_COLOURS.get(each.outcome, GREY) for each in shares]
    return shares_figure(names, [each.rate for each in shares], colours, "share of trainings", "trainings")


def _write_beside(panel: Axes, text: str, row: float) -> None:
    """Writes a text into the right margin."""
    place = ("axes fraction", "data")
    panel.annotate(text, (1, row), (4, 0), place, "offset points", va="center", color=GREY)
