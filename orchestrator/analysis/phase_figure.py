"""The figure of a phase diagram: the surface on the left, what it leaves over on the right."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from orchestrator.analysis.figures import parameter_label
from orchestrator.analysis.phase_diagram import PhaseDiagram

_LINE, _BAND = "#D55E00", "#E69F00"
"""Okabe & Ito 2008, on cividis, which the colour-blind see as others do."""
_MOST_Z = 3.0


def phase_figure(diagram: PhaseDiagram) -> Figure:
    """The probability to end stuck with its 50% line and 95% band, each trial's rate, and the binned residuals."""
    n_panels = 1 if diagram.surface is None else 2
    figure = Figure(figsize=(4.6 * n_panels, 4.0), layout="constrained", dpi=200)
    panels = figure.subplots(1, n_panels, squeeze=False)[0]
    for panel in panels:
        _axes(panel, diagram)
    panel = panels[0]
    if diagram.surface is not None:
        _draw_surface(panel, diagram)
        _draw_residuals(panels[1], diagram)
    trials = diagram.trials
    points = panel.scatter(
        trials.x, trials.y, c=trials.k / trials.n, cmap="cividis", vmin=0, vmax=1, s=18, edgecolors="white", lw=0.6
    )
    figure.colorbar(points, ax=panel, label="share of trainings that end stuck")
    panel.set_title("points: trials" if diagram.surface is None else "points: trials; surface: model", fontsize=8)
    figure.suptitle(_wrapped(diagram.note), fontsize=7)
    return figure


def _axes(panel: Axes, diagram: PhaseDiagram) -> None:
    for axis, name in ((diagram.x, "x"), (diagram.y, "y")):
        getattr(panel, f"set_{name}scale")("log" if axis.log else "linear")
        getattr(panel, f"set_{name}label")(parameter_label(axis.name))
    panel.tick_params(labelsize=8)


def _draw_surface(panel: Axes, diagram: PhaseDiagram) -> None:
    x, y, probability, low, high = diagram.grid()
    panel.pcolormesh(x, y, probability, cmap="cividis", vmin=0, vmax=1, shading="gouraud", rasterized=True)
    handles: list[Line2D | Patch] = []
    inside = (low <= 0.5) & (high >= 0.5)
    if inside.any():
        # Positive inside, so that the edge is where one of the bounds is 1/2.
        depth = np.minimum(0.5 - low, high - 0.5)
        panel.contourf(x, y, depth, levels=[0, 1], colors=[_BAND], alpha=0.45)
        handles.append(Patch(color=_BAND, alpha=0.45, label="its 95% band"))
    lines = diagram.contour()
    for line in lines:
        panel.plot(line[:, 0], line[:, 1], color=_LINE, linewidth=1.8)
    if lines:
        handles.insert(0, Line2D([], [], color=_LINE, linewidth=1.8, label="half of them stuck"))
    if handles:
        panel.legend(handles=handles, fontsize=6, loc="upper left", framealpha=0.9)


def _draw_residuals(panel: Axes, diagram: PhaseDiagram) -> None:
    norm = TwoSlopeNorm(0, -_MOST_Z, _MOST_Z)
    from matplotlib import colormaps

    colours = colormaps["PuOr"]
    for each in diagram.residuals():
        corner, width, height = (each.x_low, each.y_low), each.x_high - each.x_low, each.y_high - each.y_low
        colour = "white" if each.z is None else colours(norm(float(np.clip(each.z, -_MOST_Z, _MOST_Z))))
        panel.add_patch(Rectangle(corner, width, height, facecolor=colour, edgecolor="0.6", linewidth=0.5))
        words = f"{each.k / each.n:.2f}\n{each.expected / each.n:.2f}"
        strong = each.z is not None and abs(each.z) > 2
        panel.annotate(
            words,
            (_middle(each.x_low, each.x_high, log=diagram.x.log), _middle(each.y_low, each.y_high, log=diagram.y.log)),
            ha="center",
            va="center",
            fontsize=5.5,
            fontweight="bold" if strong else "normal",
        )
    panel.set_xlim(diagram.x.low, diagram.x.high)
    panel.set_ylim(diagram.y.low, diagram.y.high)
    surface = diagram.surface
    dispersion = f"; dispersion {surface.dispersion:.1f}" if surface is not None else ""
    panel.set_title(f"observed over expected rate, |z| > 2 bold{dispersion}", fontsize=8)


def _middle(low: float, high: float, *, log: bool) -> float:
    return float(np.sqrt(low * high)) if log else (low + high) / 2


def _wrapped(text: str) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, 110))
