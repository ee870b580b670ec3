"""The figure of observed rates: the share in each cell of two parameters."""

from dataclasses import dataclass

from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnsweep.orchestrator.analysis.figures.panels import number_label, title_panel
from attnsweep.orchestrator.analysis.figures.style import VERMILION, house_style
from attnsweep.orchestrator.analysis.rates.by_parameter import ParameterRates
from attnsweep.orchestrator.analysis.rates.figures import draw_cell, new_cells
from attnsweep.orchestrator.analysis.rates.intervals import rate_label
from attnsweep.orchestrator.report.regions import Regions
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
    names = (across.parameter, up.parameter)
    figure, panel = new_cells(names, [[each.label for each in axis.bins] for axis in regions.axes])
    hover = {}
    for cell in regions.cells:
        column, row = cell.place
        rate = cell.stuck if measure == "stuck" else cell.solved
        gid = f"cell-{measure}-{column}-{row}"
        draw_cell(panel, cell.place, rate, gid, outcome=measure)
        places = ", ".join(f"{name} {label}" for name, label in regions.labels(cell))
        hover[gid] = f"{places}: {measure} {rate_label(rate)} trainings, {cell.n_trials} trials"
    _mark_edges(panel.xaxis, across, ha="center")
    _mark_edges(panel.yaxis, up, ha="right")
    title_panel(panel, f"{measure} share observed, 95% interval")
    if regions.best is not None:
        column, row = regions.best.place
        frame = Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, edgecolor=VERMILION, linewidth=1.8)
        panel.add_patch(frame)
    return CellsFigure(figure, hover)


def _mark_edges(axis: Axis, rates: ParameterRates, ha: str) -> None:
    """Puts ticks where the bins of a range end; choices and whole numbers keep the names of their bins."""
    if isinstance(rates.dimension, Float):
        ends = [each.low for each in rates.bins] + [rates.bins[-1].high]
        labels = [number_label(end) for end in ends if end is not None]
        axis.set_ticks([at - 0.5 for at in range(len(labels))], labels, rotation=0, ha=ha)
        axis.set_tick_params(length=3)
