"""The Pareto front of a sweep with several objectives, drawn over the first two of them."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures import GREY, VERMILION, figure_text, house_style, legend_below, new_figure
from attnsweep.orchestrator.analysis.results import Preferred
from attnsweep.search_spaces.measured import WORST_LOSS, LossQuantile, Measured, goal_of

_MOST_POINTS = 2000
"""The most points of one kind: the page has a path for every point, so more would make it slow."""


@house_style()
def front_figure(preferred: Preferred, objectives: Sequence[Measured]) -> Figure:
    """Draws all complete trials by their first two objectives. Marks show whether a trial is on the Pareto front,
    behind it, or violates a constraint.

    Of more than 2,000 trials of one kind it draws every second, third, ... one. A trial with the worst value, such as
    that of an onset that never came, is left out.
    """
    on_front = {trial.trial for trial in preferred.front or ()}
    points = {
        trial: (told.values[0], told.values[1])
        for trial, told in preferred.told.items()
        if max(map(abs, told.values[:2])) < WORST_LOSS
    }
    behind = [trial for trial in points if trial not in on_front and preferred.told[trial].is_feasible]
    beyond = [trial for trial in points if not preferred.told[trial].is_feasible]
    kinds = (
        ("behind it", behind, GREY, "."),
        ("beyond a constraint", beyond, GREY, "x"),
        ("on the front", [trial for trial in points if trial in on_front], VERMILION, "o"),
    )
    figure, panel = new_figure(height=3.2)
    drawn = {}
    for kind, trials, colour, marker in kinds:
        if trials:
            across, up = zip(*(points[number] for number in trials[:: -(-len(trials) // _MOST_POINTS)]), strict=True)
            drawn[kind] = panel.scatter(across, up, s=24, color=colour, marker=marker)
    for axis, objective, values in zip(("x", "y"), objectives, zip(*points.values(), strict=True), strict=False):
        panel.set(**{f"{axis}label": figure_text(goal_of(objective), 40)})
        if isinstance(objective, LossQuantile) and min(values) > 0:
            panel.set(**{f"{axis}scale": "log"})
    legend_below(figure, drawn, columns=2)
    return figure
