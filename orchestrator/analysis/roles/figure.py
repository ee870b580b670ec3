"""The figure of role emergence: one panel per layer."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures.panels import new_share_panels, scale_steps
from attnsweep.orchestrator.analysis.figures.style import figure_text, house_style, legend_below, role_colour
from attnsweep.orchestrator.analysis.roles.emergence import RoleEmergence
from attnsweep.orchestrator.analysis.roles.results import RoleResults

_DASHES = ("-", "--", "-.", ":")


@house_style()
def emergence_figure(roles: RoleResults, title: str = "", layers: Sequence[int | None] = ()) -> Figure:
    """Draws the share of trainings in which each role has emerged, by step, with 95% bands: one panel per layer.

    Lines connect the probes. The axis of steps is logarithmic if the first probes are close together.

    Args:
        roles: The roles of a sweep, at least one.
        layers: The layers to draw; by default all.
    """
    layers = layers or list(dict.fromkeys(emergence.layer for emergence in roles.emergence))
    figure, panels = new_share_panels(len(layers), "share of trainings with the role", title)
    for panel, layer in zip(panels, layers, strict=True):
        inside = [emergence for emergence in roles.emergence if emergence.layer == layer]
        for emergence in inside:
            _draw(panel, emergence, roles.names)
        n_trainings = max(emergence.n_trainings for emergence in inside)
        panel.set_title(f"{figure_text(roles.layer_title(layer))}, {n_trainings:,} trainings")
        scale_steps(panel, sorted({point.step for emergence in inside for point in emergence.curve}))
    legend_below(figure, {str(line.get_label()): line for panel in panels for line in panel.get_lines()})
    return figure


def _draw(panel: Axes, emergence: RoleEmergence, roles: Sequence[str]) -> None:
    steps, shares = [point.step for point in emergence.curve], [point.share for point in emergence.curve]
    low, high = [point.low for point in emergence.curve], [point.high for point in emergence.curve]
    colour, dashes = role_colour(emergence.role, roles), _DASHES[roles.index(emergence.role) % len(_DASHES)]
    panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    panel.plot(steps, shares, color=colour, linestyle=dashes, marker=".", label=emergence.role, clip_on=False)
