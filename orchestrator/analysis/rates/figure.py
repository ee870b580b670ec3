"""Figures of rates: by parameter in panels, and in named places with the groups side by side."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures.axes import name_places, scale_logarithmic, scale_shares
from attnsweep.orchestrator.analysis.figures.marks import draw_interval
from attnsweep.orchestrator.analysis.figures.panels import WIDTH, new_figure, new_share_panels
from attnsweep.orchestrator.analysis.figures.style import BLUE, GREY, group_style, house_style
from attnsweep.orchestrator.analysis.figures.texts import figure_text, legend_below
from attnsweep.orchestrator.analysis.labels import parameter_label
from attnsweep.orchestrator.analysis.rates.by_parameter import ParameterRates, RateBin
from attnsweep.orchestrator.analysis.rates.intervals import Rate

_WIDE = 10
"""A choice with more values than this gets a wider panel."""


@house_style()
def stuck_rate_figure(rates: Sequence[ParameterRates], title: str = "", label: str = "stuck rate") -> Figure:
    """A rate against each swept parameter: one panel each, 95% intervals, the number of trials above each bin.

    Args:
        rates: From `rates_by`; at least one.
        title: The title above all panels.
        label: The name of the rate.
    """
    figure, panels = new_share_panels(len(rates), label, title)
    for panel, each in zip(panels, rates, strict=True):
        _draw(panel, each)
    if len(rates) == 1 and rates[0].bins[0].low is None:
        figure.set_figwidth(WIDTH * max(1.0, len(rates[0].bins) / _WIDE))
    return figure


@house_style()
def grouped_rates_figure(
    names: Sequence[str], groups: Mapping[str, Sequence[Rate]], label: str, legend: str = ""
) -> Figure:
    """Rates with their intervals at named places, the groups side by side.

    Args:
        names: The names of the places.
        groups: For each group its rate at each place.
        label: The label of the vertical axis.
        legend: The title of the legend; without one there is no legend.
    """
    figure, panel = new_figure(1.2 + 0.9 * max(len(names), 2), 3.2)
    apart = 0.7 / max(len(groups), 1)
    for number, (group, rates) in enumerate(groups.items()):
        colour, _, marker = group_style(number)
        shift = (number - (len(groups) - 1) / 2) * apart
        for place, rate in enumerate(rates):
            if rate.interval is not None:
                draw_interval(panel, place + shift, rate.interval, fmt=marker, color=colour, label=group)
    name_places(panel, names)
    scale_shares(panel, label)
    if legend:
        handles, labels = panel.get_legend_handles_labels()
        legend_below(figure, dict(zip(labels, handles, strict=True)), legend)
    return figure


def _draw(panel: Axes, rates: ParameterRates) -> None:
    is_log, low, high = getattr(rates.dimension, "log", False), rates.bins[0].low, rates.bins[-1].high
    if is_log and low is not None and high is not None:
        scale_logarithmic(panel, "x", low, high)
    for index, each in enumerate(rates.bins):
        if each.rate.interval is None:
            continue
        position = _position(each, index, is_log=is_log)
        left, right = (position if each.low is None else each.low), (position if each.high is None else each.high)
        width = [[position - left], [right - position]]
        draw_interval(panel, position, each.rate.interval, fmt="o", xerr=width, color=BLUE, clip_on=False)
        where, number = ("data", "axes fraction"), f"{each.n_trials:,}"
        panel.annotate(number, (position, 1), (0, 2), where, "offset points", ha="center", color=GREY)
    if any(each.low is None for each in rates.bins):
        name_places(panel, [each.label for each in rates.bins])
        panel.set_xlim(-0.5, len(rates.bins) - 0.5)
    label = parameter_label(rates.parameter)
    panel.set_xlabel(f"{label}\n({figure_text(rates.where, 44)})" if rates.where else label)
    panel.annotate("trials", (0, 1), (-4, 2), "axes fraction", "offset points", ha="right", color=GREY)


def _position(each: RateBin, index: int, *, is_log: bool) -> float:
    """The place of a bin's point: the bin's middle on the scale of the axis, or its number."""
    if each.low is None or each.high is None:
        return float(index)
    return math.sqrt(each.low * each.high) if is_log else (each.low + each.high) / 2
