"""The figure of roles: the share of heads in each role, by layer."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures.panels import new_figure
from attnsweep.orchestrator.analysis.figures.style import draw_bar, figure_text, house_style, legend_below, role_colour
from attnsweep.orchestrator.analysis.roles.results import RoleResults
from attnsweep.orchestrator.report.composition import RoleShare


@house_style()
def composition_figure(composition: Sequence[RoleShare], roles: RoleResults) -> Figure:
    """The share of heads in each role by layer, with 95% intervals."""
    layers = list(dict.fromkeys(each.layer for each in composition))
    names = list(dict.fromkeys(each.role for each in composition))
    height = 1.05 + 0.2 * len(layers) * max(len(names), 2)
    figure, panel = new_figure(height=height, grid="x")
    for each in composition:
        if each.rate.interval is not None:
            row = layers.index(each.layer) + 0.7 * ((names.index(each.role) + 0.5) / len(names) - 0.5)
            colour = role_colour(each.role, roles.names)
            draw_bar(panel, row, each.rate.interval, 0.6 / len(names), colour, label=each.role)
    panel.set_yticks(range(len(layers)), [figure_text(roles.layer_title(layer)) for layer in layers])
    panel.set_ylim(len(layers) - 0.5, -0.5)
    panel.set_xlim(0, 1)
    panel.set_xlabel("share of heads at the last probe")
    bars, labels = panel.get_legend_handles_labels()
    legend_below(figure, dict(zip(labels, bars, strict=True)))
    return figure
