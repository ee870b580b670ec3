"""Figures of rates: a panel for each parameter, groups side by side, and maps of the cells of two parameters."""

import math
from collections.abc import Mapping, Sequence

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from attnsweep.orchestrator.analysis import figures
from attnsweep.orchestrator.analysis.labels import BLUE, GREY, bin_label, letters_on, parameter_label
from attnsweep.orchestrator.analysis.rates.by_parameter import ParameterRates
from attnsweep.orchestrator.analysis.rates.intervals import Rate, decimals

_WIDE = 10
"""A choice with more values than this gets a wider panel. A range with more bins than this has one note in place of the
number of trials above each bin."""
_MOST_WRITTEN = 60
"""If there are more cells than this, no numbers are written into them."""
_MOST_NAMES = 8
"""An axis with more bins than this names only some of them."""


@figures.house_style()
def stuck_rate_figure(rates: Sequence[ParameterRates], title: str = "", label: str = "stuck rate") -> Figure:
    """The rate named `label` against each parameter, with 95% intervals and the trials above each bin."""
    figure, panels = figures.new_share_panels(len(rates), label, title)
    for panel, parameter_rates in zip(panels, rates, strict=True):
        _draw(panel, parameter_rates)
    if len(rates) == 1 and rates[0].bins[0].low is None:
        figure.set_figwidth(figures.WIDTH * max(1.0, len(rates[0].bins) / _WIDE))
    return figure


@figures.house_style()
def grouped_rates_figure(
    names: Sequence[str], groups: Mapping[str, Sequence[Rate]], label: str, legend: str = ""
) -> Figure:
    """Several rates for each group, with intervals."""
    figure, panel = figures.new_figure(1.2 + 0.9 * max(len(names), 2), 3.2)
    apart = 0.7 / max(len(groups), 1)
    for number, (group, rates) in enumerate(groups.items()):
        colour, _, marker = figures.group_style(number)
        shift = (number - (len(groups) - 1) / 2) * apart
        for place, rate in enumerate(rates):
            if rate.interval is not None:
                figures.draw_interval(panel, place + shift, rate.interval, fmt=marker, color=colour, label=group)
    figures.name_places(panel, names)
    figures.scale_shares(panel, label)
    if legend:
        handles, labels = panel.get_legend_handles_labels()
        figures.legend_below(figure, dict(zip(labels, handles, strict=True)), legend)
    return figure


def _draw(panel: Axes, rates: ParameterRates) -> None:
    is_log, low, high = getattr(rates.dimension, "log", False), rates.bins[0].low, rates.bins[-1].high
    if is_log and low is not None and high is not None:
        figures.scale_logarithmic(panel, "x", low, high)
    are_many = low is not None and len(rates.bins) > _WIDE
    for index, bin_ in enumerate(rates.bins):
        if bin_.rate.interval is None:
            continue
        left, right = (index if end is None else end for end in (bin_.low, bin_.high))
        position = math.sqrt(left * right) if is_log else (left + right) / 2
        width = [[position - left], [right - position]]
        figures.draw_interval(panel, position, bin_.rate.interval, fmt="o", xerr=width, color=BLUE, clip_on=False)
        if not are_many:
            where, number = ("data", "axes fraction"), f"{bin_.n_trials:,}"
            panel.annotate(number, (position, 1), (0, 2), where, "offset points", ha="center", color=GREY)
    if any(bin_.low is None for bin_ in rates.bins):
        figures.name_places(panel, [bin_.label for bin_ in rates.bins])
        panel.set_xlim(-0.5, len(rates.bins) - 0.5)
    label = parameter_label(rates.parameter)
    panel.set_xlabel(f"{label}\n({figures.figure_text(rates.where, 44)})" if rates.where else label)
    if are_many:
        numbers = [bin_.n_trials for bin_ in rates.bins]
        note, place = f"{min(numbers):,} to {max(numbers):,} trials in a bin", (0.5, 1)
        panel.annotate(note, place, (0, 2), "axes fraction", "offset points", ha="center", color=GREY)
    else:
        panel.annotate("trials", (0, 1), (-4, 2), "axes fraction", "offset points", ha="right", color=GREY)


@figures.house_style()
def outcome_map_figure(
    names: Sequence[str],
    bins: Sequence[Sequence[str]],
    cells: Mapping[tuple[int, ...], tuple[str, Rate]],
    colours: Mapping[str, str],
) -> Figure:
    """Each cell has the colour of its most frequent outcome, with its share and interval written in."""
    figure, panel = _new_cells(names, bins)
    handles = {}
    for place, (outcome, rate) in cells.items():
        colour = colours.get(outcome, GREY)
        _draw_cell(panel, place, rate, colour)
        handles[outcome] = Patch(color=colour)
    figures.title_panel(panel, "most frequent outcome, its share" if _are_written(panel) else "most frequent outcome")
    figures.legend_below(figure, handles, columns=3)
    return figure


def _new_cells(names: Sequence[str], bins: Sequence[Sequence[str]]) -> tuple[Figure, Axes]:
    """The first parameter across, the second up."""
    (n_columns, n_rows), (across, up) = map(len, bins), names
    width, height = (0.62, 0.42) if n_columns * n_rows <= _MOST_WRITTEN else (0.26, 0.22)
    figure, (panel,) = figures.new_planes(
        1, max(figures.WIDTH, 1.0 + width * n_columns), max(2.4, 0.95 + height * n_rows)
    )
    panel.set_xlim(-0.5, n_columns - 0.5)
    panel.set_ylim(-0.5, n_rows - 0.5)
    figures.name_places(panel, _some([bin_label(label) for label in bins[0]]))
    panel.set_yticks(range(n_rows), _some([figures.figure_text(bin_label(label), 14) for label in bins[1]]))
    panel.tick_params(length=0)
    panel.set_xlabel(parameter_label(across))
    panel.set_ylabel(parameter_label(up))
    panel.spines[:].set_visible(False)
    return figure, panel


def _some(names: Sequence[str]) -> list[str]:
    every = math.ceil(len(names) / _MOST_NAMES)
    return [name if at % every == 0 else "" for at, name in enumerate(names)]


def _are_written(panel: Axes) -> bool:
    return len(panel.get_xticks()) * len(panel.get_yticks()) <= _MOST_WRITTEN


def _draw_cell(panel: Axes, place: tuple[int, ...], rate: Rate, colour: str) -> None:
    """Hatched if it has no trainings."""
    x, y = place
    patch = Rectangle((x - 0.5, y - 0.5), 1, 1, edgecolor="white", linewidth=1)
    panel.add_patch(patch)
    if rate.interval is None:
        patch.set(facecolor="0.93", hatch="///", edgecolor="0.8", linewidth=0)
        return
    patch.set_facecolor(colour)
    if _are_written(panel):
        share, low, high = rate.interval
        letters, digits, size = letters_on(colour), decimals(low, high), rcParams["xtick.labelsize"]
        panel.text(x, y, f"{share:.{digits}f}", ha="center", va="bottom", color=letters, fontsize=size)
        panel.text(x, y - 0.08, f"{low:.{digits}f}–{high:.{digits}f}", ha="center", va="top", color=letters)
