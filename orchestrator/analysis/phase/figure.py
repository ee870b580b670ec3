"""Figures of a phase diagram: the model's surface over what was observed, and what it leaves over."""

import textwrap
from typing import Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from attnsweep.orchestrator.analysis.figures.style import (
    DPI,
    LABEL_SIZE,
    NOTE_SIZE,
    SHARES,
    TICK_SIZE,
    VERMILION,
    WIDTH,
    legend_below,
    new_figure,
    scale_logarithmic,
)
from attnsweep.orchestrator.analysis.labels import parameter_label
from attnsweep.orchestrator.analysis.phase.diagram import Axis, PhaseDiagram, ResidualBin

_HEIGHT = 3.3
_MOST_POINTS = 400
"""Trials that are drawn one by one."""
_SURPRISING, _MOST_Z = 2.0, 3.0
_DARK_Z = 1.8
"""From which black letters are hard to read."""
_ROOM = 0.14, 0.1
"""Of the axes, that a cell's numbers need."""


def phase_figure(diagram: PhaseDiagram) -> Figure:
    """The model beside its residuals; the trials alone where there is no model."""
    if diagram.surface is None:
        return model_figure(diagram)
    figure = Figure(figsize=(2 * WIDTH, _HEIGHT + 0.3), layout="constrained", dpi=DPI)
    left, right = figure.subplots(1, 2)
    _draw_model(figure, left, diagram)
    _draw_residuals(figure, right, diagram)
    figure.suptitle(_wrapped(diagram, 120), fontsize=NOTE_SIZE)
    return figure


def model_figure(diagram: PhaseDiagram) -> Figure:
    """The probability to end stuck with its 50% line and band, and what was observed in the same colours."""
    figure, panel = new_figure(height=_HEIGHT)
    _draw_model(figure, panel, diagram)
    if diagram.surface is None:
        figure.suptitle(_wrapped(diagram, 60), fontsize=NOTE_SIZE)
    return figure


def residual_figure(diagram: PhaseDiagram) -> Figure:
    """Observed and expected shares in cells of the plane."""
    figure, panel = new_figure(height=_HEIGHT)
    _draw_residuals(figure, panel, diagram)
    return figure


def _draw_model(figure: Figure, panel: Axes, diagram: PhaseDiagram) -> None:
    handles: dict[str, Artist] = {}
    if diagram.surface is not None:
        handles |= _draw_surface(panel, diagram)
    name, points = _draw_observed(panel, diagram)
    panel.set_title("share of trainings that end stuck", fontsize=LABEL_SIZE)
    _finish(figure, panel, diagram, ScalarMappable(Normalize(0, 1), SHARES), "stuck share")
    legend_below(figure, handles | {name: points}, columns=3)


def _draw_surface(panel: Axes, diagram: PhaseDiagram) -> dict[str, Artist]:
    """The model, and what of it a legend names."""
    x, y, probability, low, high = diagram.grid()
    panel.pcolormesh(x, y, probability, cmap=SHARES, vmin=0, vmax=1, shading="gouraud", rasterized=True)
    handles: dict[str, Artist] = {}
    lines = diagram.contour()
    for line in lines:
        panel.plot(line[:, 0], line[:, 1], color=VERMILION, linewidth=1.8)
    if lines:
        handles["half are stuck"] = Line2D([], [], color=VERMILION, linewidth=1.8)
    # Positive inside, so that the edge is where one of the bounds is 1/2.
    depth = np.minimum(0.5 - low, high - 0.5)
    if (depth >= 0).any():
        panel.contourf(x, y, depth, levels=[0, 1], colors=["white"], alpha=0.45)
        panel.contour(x, y, depth, levels=[0], colors=[VERMILION], linewidths=0.9, linestyles="dashed")
        handles["its 95% band"] = Line2D([], [], color=VERMILION, linewidth=0.9, linestyle="--")
    return handles


def _draw_observed(panel: Axes, diagram: PhaseDiagram) -> tuple[str, Artist]:
    """Each trial in the colour of its share; where they are many, the middle of each cell of the residuals."""
    trials, name, marker = diagram.trials, "trial", "o"
    x, y, share = trials.x, trials.y, trials.k / trials.n
    if len(x) > _MOST_POINTS and (cells := diagram.residuals()):
        x, y = (np.array(middles) for middles in zip(*(_middle(diagram, each) for each in cells), strict=True))
        share, name, marker = np.array([each.k / each.n for each in cells]), "trials around", "s"
    panel.scatter(
        x,
        y,
        s=16,
        c=share,
        marker=marker,
        cmap=SHARES,
        vmin=0,
        vmax=1,
        edgecolors="black",
        linewidths=0.6,
        clip_on=False,
        zorder=3,
    )
    return name, Line2D([], [], color="0.6", marker=marker, markersize=4, markeredgecolor="black", linestyle="none")


def _draw_residuals(figure: Figure, panel: Axes, diagram: PhaseDiagram) -> None:
    z_colours = ScalarMappable(Normalize(-_MOST_Z, _MOST_Z), "PuOr_r")
    for each in diagram.residuals():
        corner, width, height = (each.x_low, each.y_low), each.x_high - each.x_low, each.y_high - each.y_low
        colour = "white" if each.z is None else z_colours.to_rgba(np.array(each.z))
        panel.add_patch(Rectangle(corner, width, height, facecolor=colour, edgecolor="0.6", linewidth=0.5))
        ends = (
            diagram.x.scaled(np.array([each.x_low, each.x_high])),
            diagram.y.scaled(np.array([each.y_low, each.y_high])),
        )
        if any((last - first) / 2 < room for (first, last), room in zip(ends, _ROOM, strict=True)):
            continue
        z = abs(each.z or 0)
        panel.annotate(
            f"{each.k / each.n:.2f}\n({each.expected / each.n:.2f})",
            _middle(diagram, each),
            ha="center",
            va="center",
            fontsize=NOTE_SIZE,
            color="white" if z > _DARK_Z else "black",
            fontweight="bold" if z > _SURPRISING else "normal",
        )
    panel.set_title("observed (expected) stuck share", fontsize=LABEL_SIZE)
    _finish(figure, panel, diagram, z_colours, "z of observed less expected; bold: |z| > 2")


def _finish(figure: Figure, panel: Axes, diagram: PhaseDiagram, colours: ScalarMappable, label: str) -> None:
    sides: tuple[tuple[Axis, Literal["x", "y"]], ...] = ((diagram.x, "x"), (diagram.y, "y"))
    for axis, name in sides:
        if axis.log:
            scale_logarithmic(panel, name, axis.low, axis.high)
        if axis.low < axis.high:
            getattr(panel, f"set_{name}lim")(axis.low, axis.high)
        getattr(panel, f"set_{name}label")(parameter_label(axis.name), fontsize=LABEL_SIZE)
    panel.tick_params(labelsize=TICK_SIZE)
    bar = figure.colorbar(colours, ax=panel, fraction=0.06, pad=0.02)
    bar.set_label(label, fontsize=TICK_SIZE)
    bar.ax.tick_params(labelsize=NOTE_SIZE)


def _middle(diagram: PhaseDiagram, each: ResidualBin) -> tuple[float, float]:
    """Of a cell, as it is drawn."""
    ends = ((diagram.x, each.x_low, each.x_high), (diagram.y, each.y_low, each.y_high))
    x, y = (float(np.sqrt(low * high)) if axis.log else (low + high) / 2 for axis, low, high in ends)
    return x, y


def _wrapped(diagram: PhaseDiagram, width: int) -> str:
    return "\n".join(textwrap.wrap(diagram.note, width))
