"""Figures of a phase diagram: the fitted probability with the trials, and observed beside predicted shares."""

import textwrap
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from attnsweep.orchestrator.analysis import figures
from attnsweep.orchestrator.analysis.labels import VERMILION, letters_on, parameter_label
from attnsweep.orchestrator.analysis.phase.surface import PlaneAxis, ResidualBin, Surface, TrialCounts
from attnsweep.orchestrator.analysis.rates.by_parameter import Ending

Plane: TypeAlias = tuple[PlaneAxis, PlaneAxis]

_HEIGHT = 3.3
_MOST_POINTS = 400
"""Up to this many trials are drawn individually."""
_MOST_MARKS = 25
"""If there are more cells than this, the figure of the surface has no marks with the cells' observed shares; the figure
of residuals has them."""
_SURPRISING, _MOST_Z = 2.0, 3.0
_ROOM = 0.14, 0.1
"""A cell's numbers are drawn if the cell spans at least these shares of the x and of the y axis."""


@figures.house_style()
def phase_figure(plane: Plane, trials: TrialCounts, surface: Surface | None, ending: Ending, note: str) -> Figure:
    """The model and, if there is one, its residuals, with `note` above them."""
    n_panels = 1 if surface is None else 2
    figure, panels = figures.new_planes(n_panels, figures.WIDTH * n_panels, _HEIGHT + 0.3 * (n_panels - 1))
    _draw_model(figure, panels[0], plane, trials, surface, ending)
    if surface is not None:
        _draw_residuals(figure, panels[1], plane, surface.residuals, ending)
    figure.suptitle("\n".join(textwrap.wrap(note, 60 * n_panels)), fontsize="medium")
    return figure


def _draw_model(
    figure: Figure, panel: Axes, plane: Plane, trials: TrialCounts, surface: Surface | None, ending: Ending
) -> None:
    handles: dict[str, Artist] = {} if surface is None else _draw_surface(panel, surface, ending)
    cells = surface.residuals if surface is not None and len(trials.x) > _MOST_POINTS else ()
    if len(cells) <= _MOST_MARKS:
        handles |= _draw_observed(panel, plane, trials, cells, ending)
    _finish(
        figure,
        panel,
        plane,
        ScalarMappable(Normalize(0, 1), figures.share_colours(ending.outcome)),
        figures.figure_text(f"{ending.label} share", 40),
    )
    figures.title_panel(panel, figures.figure_text(f"share of trainings that {ending.verb}", 48))
    if handles:
        figures.legend_below(figure, handles, columns=3)


def _draw_surface(panel: Axes, surface: Surface, ending: Ending) -> dict[str, Artist]:
    x, y, probability, _, _ = surface.grid
    panel.pcolormesh(
        x,
        y,
        probability,
        vmin=0,
        vmax=1,
        shading="gouraud",
        rasterized=True,
        cmap=figures.share_colours(ending.outcome),
    )
    handles: dict[str, Artist] = {}
    for line in surface.contour():
        (handles[f"half {ending.verb}"],) = panel.plot(line[:, 0], line[:, 1], color=VERMILION, linewidth=1.8)
    depth = surface.border_depth()
    if handles and (depth >= 0).any():
        panel.contourf(x, y, depth, levels=[0, 1], colors=["white"], alpha=0.45)
        panel.contour(x, y, depth, levels=[0], colors=[VERMILION], linewidths=0.9, linestyles="dashed")
        handles["its 95% band"] = Line2D([], [], color=VERMILION, linewidth=0.9, linestyle="--")
    return handles


def _draw_observed(
    panel: Axes, plane: Plane, trials: TrialCounts, cells: Sequence[ResidualBin], ending: Ending
) -> dict[str, Artist]:
    """A dot for each trial or, if `cells` are given, a square for each cell."""
    x, y, share, name, marker = trials.x, trials.y, trials.k / trials.n, "trial", "o"
    if cells:
        x, y = (np.array(middles) for middles in zip(*(_middle(plane, cell) for cell in cells), strict=True))
        share, name, marker = np.array([cell.k / cell.n for cell in cells]), "trials around", "s"
    look: dict[str, Any] = {
        "cmap": figures.share_colours(ending.outcome),
        "edgecolors": "black",
        "linewidths": 0.6,
        "clip_on": False,
        "zorder": 3,
    }
    panel.scatter(x, y, s=16, c=share, marker=marker, vmin=0, vmax=1, **look)
    return {name: Line2D([], [], color="0.6", marker=marker, markeredgecolor="black", linestyle="none")}


def _draw_residuals(figure: Figure, panel: Axes, plane: Plane, cells: Sequence[ResidualBin], ending: Ending) -> None:
    z_colours = ScalarMappable(Normalize(-_MOST_Z, _MOST_Z), "PuOr_r")
    for cell in cells:
        corner, width, height = (cell.x_low, cell.y_low), cell.x_high - cell.x_low, cell.y_high - cell.y_low
        colour = "white" if cell.z is None else z_colours.to_rgba(np.array(cell.z))
        patch = Rectangle(corner, width, height, facecolor=colour, edgecolor="0.6", linewidth=0.5)
        panel.add_patch(patch)
        if not _has_room(plane, cell):
            continue
        z = abs(cell.z or 0)
        panel.annotate(
            f"{cell.k / cell.n:.2f}\n({cell.expected / cell.n:.2f})",
            _middle(plane, cell),
            ha="center",
            va="center",
            color=letters_on(to_hex(patch.get_facecolor())),
            fontweight="bold" if z > _SURPRISING else "normal",
        )
    bold = "; bold: |z| > 2" if panel.texts else ""
    _finish(figure, panel, plane, z_colours, f"z of observed less expected{bold}")
    what = "observed (expected)" if panel.texts else "residuals of the"
    figures.title_panel(panel, figures.figure_text(f"{what} {ending.label} share", 48))


def _finish(figure: Figure, panel: Axes, plane: Plane, colours: ScalarMappable, label: str) -> None:
    sides: tuple[Literal["x", "y"], ...] = ("x", "y")
    for axis, side in zip(plane, sides, strict=True):
        if axis.log:
            figures.scale_logarithmic(panel, side, axis.low, axis.high)
        if axis.low < axis.high:
            getattr(panel, f"set_{side}lim")(axis.low, axis.high)
        getattr(panel, f"set_{side}label")(parameter_label(axis.name))
    bar = figure.colorbar(colours, ax=panel, label=label, fraction=0.06, pad=0.02)
    figures.fix_tick_sizes(bar.ax)


def _has_room(plane: Plane, cell: ResidualBin) -> bool:
    """Whether the drawn cell has room for its numbers."""
    x, y = plane
    widths = (
        np.ptp(x.scaled(np.array([cell.x_low, cell.x_high]))),
        np.ptp(y.scaled(np.array([cell.y_low, cell.y_high]))),
    )
    return all(width / 2 >= room for width, room in zip(widths, _ROOM, strict=True))


def _middle(plane: Plane, cell: ResidualBin) -> tuple[float, float]:
    ends = zip(plane, (cell.x_low, cell.y_low), (cell.x_high, cell.y_high), strict=True)
    x, y = (float(np.sqrt(low * high)) if axis.log else (low + high) / 2 for axis, low, high in ends)
    return x, y
