"""Figures of cells of two parameters: a rate with the test of interaction, and the most frequent outcome."""

import textwrap
from collections.abc import Mapping, Sequence

from matplotlib import colormaps, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from attnsweep.orchestrator.analysis.figures.axes import bin_label, name_places, title_panel
from attnsweep.orchestrator.analysis.figures.panels import WIDTH, new_planes
from attnsweep.orchestrator.analysis.figures.style import GREY, OUTCOME_COLOURS, house_style, letters_on, share_colours
from attnsweep.orchestrator.analysis.figures.texts import figure_text, legend_below
from attnsweep.orchestrator.analysis.labels import parameter_label
from attnsweep.orchestrator.analysis.rates.ending import Ending
from attnsweep.orchestrator.analysis.rates.intervals import Rate, decimals


@house_style()
def rate_map_figure(
    names: Sequence[str],
    bins: Sequence[Sequence[str]],
    cells: Mapping[tuple[int, ...], Rate],
    ending: Ending,
    note: str,
) -> Figure:
    """The rate in each cell with its interval; cells without trials are left white.

    Args:
        names: The two parameters.
        bins: The labels of the bins of each.
        cells: The rate of each cell, by the numbers of its bins.
        ending: What the rate is of.
        note: A sentence above the figure.
    """
    figure, panel = new_cells(names, bins)
    for place, rate in cells.items():
        draw_cell(panel, place, rate, f"cell-{place[0]}-{place[1]}", outcome=ending.outcome)
    title_panel(panel, f"{ending.share_label}, 95% interval")
    figure.suptitle("\n".join(textwrap.wrap(note, int(12 * figure.get_figwidth()))), fontsize="medium")
    return figure


@house_style()
def outcome_map_figure(
    names: Sequence[str], bins: Sequence[Sequence[str]], cells: Mapping[tuple[int, ...], tuple[str, Rate]]
) -> Figure:
    """Each cell in the colour of its most frequent outcome, whose share and interval are written in.

    Args:
        names: The two parameters.
        bins: The labels of the bins of each.
        cells: The most frequent outcome of each cell and its rate, by the numbers of the cell's bins.
    """
    figure, panel = new_cells(names, bins)
    handles = {}
    for place, (outcome, rate) in cells.items():
        colour = OUTCOME_COLOURS.get(outcome, GREY)
        draw_cell(panel, place, rate, map_gid(place), colour)
        handles[outcome] = Patch(color=colour)
    title_panel(panel, "most frequent outcome, its share")
    legend_below(figure, handles, columns=3)
    return figure


def map_gid(place: tuple[int, ...]) -> str:
    """The name of a cell's patch in the SVG file of the map."""
    return f"cell-outcome-{place[0]}-{place[1]}"


def new_cells(names: Sequence[str], bins: Sequence[Sequence[str]]) -> tuple[Figure, Axes]:
    """A figure for the cells of two parameters: the first across, the second up.

    Args:
        names: The two parameters.
        bins: The labels of the bins of each.
    """
    (n_columns, n_rows), (across, up) = map(len, bins), names
    figure, (panel,) = new_planes(1, max(WIDTH, 1.0 + 0.62 * n_columns), max(2.4, 0.95 + 0.42 * n_rows))
    panel.set_xlim(-0.5, n_columns - 0.5)
    panel.set_ylim(-0.5, n_rows - 0.5)
    name_places(panel, [bin_label(each) for each in bins[0]])
    panel.set_yticks(range(n_rows), [figure_text(bin_label(each), 14) for each in bins[1]])
    panel.tick_params(length=0)
    panel.set_xlabel(parameter_label(across))
    panel.set_ylabel(parameter_label(up))
    panel.spines[:].set_visible(False)
    return figure, panel


def draw_cell(
    panel: Axes, place: tuple[int, ...], rate: Rate, gid: str, colour: str | None = None, outcome: str = ""
) -> None:
    """Draws a cell; one without trainings is hatched.

    Args:
        panel: The axes to draw into.
        place: The numbers of the cell's bins.
        rate: What is written in.
        gid: The name of the patch in an SVG file.
        colour: The colour of the patch; default by the share.
        outcome: What the share is of.
    """
    x, y = place
    patch = Rectangle((x - 0.5, y - 0.5), 1, 1, edgecolor="white", linewidth=1, gid=gid)
    panel.add_patch(patch)
    if rate.interval is None:
        patch.set(facecolor="0.93", hatch="///", edgecolor="0.8", linewidth=0)
        return
    share, low, high = rate.interval
    patch.set_facecolor(colour or colormaps[share_colours(outcome)](share))
    letters, digits = letters_on(patch.get_facecolor()), decimals(low, high)
    size = rcParams["xtick.labelsize"]
    # A page in dark colours recolours letters, except those with a gid.
    said, interval = f"{share:.{digits}f}", f"{low:.{digits}f}–{high:.{digits}f}"
    panel.text(x, y, said, ha="center", va="bottom", color=letters, fontsize=size, gid=f"{gid}-share")
    panel.text(x, y - 0.08, interval, ha="center", va="top", color=letters, gid=f"{gid}-interval")
