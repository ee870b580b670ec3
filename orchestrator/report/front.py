"""The Pareto front of a sweep with several objectives, drawn over the first two of them."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures.panels import new_figure
from attnsweep.orchestrator.analysis.figures.style import GREY, VERMILION, figure_text, house_style, legend_below
from attnsweep.orchestrator.analysis.preferred import Preferred
from attnsweep.search_spaces.measured import LossQuantile, Measured, goal_of

_MOST_POINTS = 2000
"""The most points of one kind: a page draws each as a path."""


@house_style()
def front_figure(preferred: Preferred, objectives: Sequence[Measured]) -> Figure:
    """All complete trials by their first two objectives: on the front, behind it, and those that a constraint excludes.

    Of over 2,000 trials of one kind it has an even part.
    """
    on_front = {each.trial for each in preferred.front or ()}
    figure, panel = new_figure(height=3.2)
    kinds: Mapping[str, tuple[list[int], str, str]] = {
        "behind it": ([], GREY, "."),
        "beyond a constraint": ([], GREY, "x"),
        "on the Pareto front": ([], VERMILION, "o"),
    }
    for trial, told in preferred.told.items():
        kind = "on the Pareto front" if trial in on_front else "behind it"
        kinds[kind if told.is_feasible else "beyond a constraint"][0].append(trial)
    drawn = {}
    for kind, (trials, colour, marker) in kinds.items():
        if trials:
            chosen = trials[:: -(-len(trials) // _MOST_POINTS)]
            across, up = zip(*(preferred.told[trial].values[:2] for trial in chosen), strict=True)
            drawn[kind] = panel.scatter(across, up, s=16, color=colour, marker=marker)
    _name_axes(panel, preferred, objectives)
    legend_below(figure, drawn)
    return figure


def _name_axes(panel: Axes, preferred: Preferred, objectives: Sequence[Measured]) -> None:
    """Names what each axis shows; an axis of positive losses is logarithmic."""
    for at, (objective, axis) in enumerate(zip(objectives, ("x", "y"), strict=False)):
        panel.set(**{f"{axis}label": figure_text(goal_of(objective), 40)})
        if isinstance(objective, LossQuantile) and all(each.values[at] > 0 for each in preferred.told.values()):
            panel.set(**{f"{axis}scale": "log"})
