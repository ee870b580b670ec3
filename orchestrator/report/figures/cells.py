"""The figure of observed rates: the share in each cell of two parameters."""

import math
from dataclasses import dataclass

from matplotlib import colormaps, rcParams
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnsweep.orchestrator.analysis.figures.axes import name_places
from attnsweep.orchestrator.analysis.figures.panels import WIDTH, new_planes
from attnsweep.orchestrator.analysis.figures.style import VERMILION, house_style, letters_on
from attnsweep.orchestrator.analysis.figures.texts import figure_text
from attnsweep.orchestrator.analysis.labels import parameter_label
from attnsweep.orchestrator.analysis.rates.by_parameter import ParameterRates
from attnsweep.orchestrator.analysis.rates.intervals import Rate, decimals, rate_label
from attnsweep.orchestrator.report.regions import Cell, Regions
from attnsweep.search_spaces.dimensions import Float


@dataclass(frozen=True, slots=True)
class CellsFigure:
    """The figure, and by the `gid` of each cell's patch the full text of the cell."""

    figure: Figure
    hover: dict[str, str]


@house_style()
def cells_figure(regions: Regions, measure: str) -> CellsFigure:
    """The stuck or the solved share in each cell of the two parameters, with its interval written in.

    Args:
        regions: With two axes.
        measure: `stuck` or `solved`.
    """
    across, up = regions.axes
    n_columns, n_rows = len(across.bins), len(up.bins)
    figure, (panel,) = new_planes(1, max(WIDTH, 1.0 + 0.62 * n_columns), max(2.4, 0.95 + 0.42 * n_rows))
    hover = {}
    for cell in regions.cells:
        column, row = cell.place
        rate = cell.stuck if measure == "stuck" else cell.solved
        gid = f"cell-{measure}-{column}-{row}"
        _draw_cell(panel, cell, rate, gid)
        places = ", ".join(f"{name} {label}" for name, label in regions.labels(cell))
        hover[gid] = f"{places}: {measure} {rate_label(rate)} trainings, {cell.n_trials} trials"
    panel.set_xlim(-0.5, n_columns - 0.5)
    panel.set_ylim(-0.5, n_rows - 0.5)
    name_places(panel, [each.label for each in across.bins])
    panel.set_yticks(range(n_rows), [figure_text(each.label, 14) for each in up.bins])
    panel.tick_params(length=0)
    _mark_edges(panel.xaxis, across, ha="center")
    _mark_edges(panel.yaxis, up, ha="right")
    panel.set_xlabel(parameter_label(across.parameter))
    panel.set_ylabel(parameter_label(up.parameter))
    panel.set_title(f"{measure} share observed, 95% interval")
    panel.spines[:].set_visible(False)
    if regions.best is not None:
        column, row = regions.best.place
        frame = Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor=VERMILION, linewidth=1.8)
        panel.add_patch(frame)
    return CellsFigure(figure, hover)


def _mark_edges(axis: Axis, rates: ParameterRates, ha: str) -> None:
    """Puts ticks where the bins of a range end; choices and whole numbers keep the names of their bins."""
    if isinstance(rates.dimension, Float):
        ends = [each.low for each in rates.bins] + [rates.bins[-1].high]
        labels = [_number(end) for end in ends if end is not None]
        axis.set_ticks([at - 0.5 for at in range(len(labels))], labels, rotation=0, ha=ha)
        axis.set_tick_params(length=3)


def _number(value: float) -> str:
    """`$10^{-4}$` for a power of ten with many zeros; else up to three digits."""
    power = round(math.log10(value)) if value > 0 else 0
    return f"$10^{{{power}}}$" if abs(power) > 1 and value == float(f"1e{power}") else f"{value:.3g}"


def _draw_cell(panel: Axes, cell: Cell, rate: Rate, gid: str) -> None:
    x, y = cell.place
    patch = Rectangle((x - 0.5, y - 0.5), 1, 1, edgecolor="white", linewidth=1, gid=gid)
    panel.add_patch(patch)
    if rate.interval is None:
        patch.set(facecolor="0.93", hatch="///", edgecolor="0.8", linewidth=0)
        return
    share, low, high = rate.interval
    patch.set_facecolor(colormaps[rcParams["image.cmap"]](share))
    colour, digits = letters_on(patch.get_facecolor()), decimals(low, high)
    size = rcParams["xtick.labelsize"]
    panel.text(x, y, f"{share:.{digits}f}", ha="center", va="bottom", color=colour, fontsize=size)
    panel.text(x, y - 0.08, f"{low:.{digits}f}–{high:.{digits}f}", ha="center", va="top", color=colour)
