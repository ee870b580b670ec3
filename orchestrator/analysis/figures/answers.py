"""Figures of answers."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.comparison.sweeps import SweepComparison
from attnsweep.orchestrator.analysis.figures.rates import stuck_rate_figure
from attnsweep.orchestrator.analysis.figures.style import (
    BLUE,
    GREY,
    GROUP_STYLES,
    HEIGHT,
    LABEL_SIZE,
    NOTE_SIZE,
    VERMILION,
    WIDTH,
    figure_text,
    legend_below,
    name_places,
    new_figure,
    reach,
    scale_steps,
    tidy,
)
from attnsweep.orchestrator.analysis.importance import Importance
from attnsweep.orchestrator.analysis.intervals import Rate, rate_label
from attnsweep.orchestrator.analysis.labels import parameter_label
from attnsweep.orchestrator.analysis.onset import Onset
from attnsweep.orchestrator.analysis.rate_answers import OutcomeRates, StuckRates


def stuck_rates_figure(answer: StuckRates) -> Figure:
    """One panel per parameter; without any, the rate over all trials alone."""
    drawn = [each for each in answer.by_parameter if each.bins]
    if drawn:
        return stuck_rate_figure(drawn, title=f"stuck rate {rate_label(answer.overall)}")
    figure, panel = new_figure(WIDTH, HEIGHT)
    _draw_rates(panel, [(0.0, answer.overall)], 0, "")
    panel.set_xticks([0], ["all trials"])
    panel.set_ylabel("stuck rate")
    panel.set_ylim(-0.03, 1.03)
    tidy(panel)
    return figure


def outcomes_figure(answer: OutcomeRates) -> Figure:
    """The rate of each outcome with its interval: groups side by side."""
    figure, panel = new_figure(1.2 + 0.9 * max(len(answer.outcomes), 2), 3.2)
    width = 0.7 / max(len(answer.groups), 1)
    for index, (label, rates) in enumerate(zip(answer.groups, answer.rates, strict=True)):
        shift = (index - (len(answer.groups) - 1) / 2) * width
        _draw_rates(panel, [(place + shift, rate) for place, rate in enumerate(rates)], index, label)
    name_places(panel, [name.replace("_", " ") for name in answer.outcomes])
    panel.set_ylabel("share of trainings, 95% interval")
    panel.set_ylim(-0.03, 1.03)
    tidy(panel)
    if answer.by:
        handles, labels = panel.get_legend_handles_labels()
        legend_below(figure, dict(zip(labels, handles, strict=True)), parameter_label(answer.by))
    return figure


def onset_figure(answer: Onset) -> Figure:
    """The share that has come to it, by step, with its pointwise band: one line per group."""
    figure, panel = new_figure(1.3 * WIDTH, HEIGHT + 0.15 * len(answer.curves))
    for index, each in enumerate(answer.curves):
        colour, dashes, _ = GROUP_STYLES[index % len(GROUP_STYLES)]
        steps = [point.step for point in each.curve]
        low, high = [point.low for point in each.curve], [point.high for point in each.curve]
        panel.fill_between(steps, low, high, step="post", color=colour, alpha=0.18, linewidth=0)
        label = f"{each.label} ({each.n_trainings:,} trainings, {each.n_trials:,} trials)"
        shares = [point.share for point in each.curve]
        panel.step(steps, shares, where="post", color=colour, linestyle=dashes, linewidth=1.4, label=label)
    panel.set_xlabel("optimizer steps")
    panel.set_ylabel(f"share come to {figure_text(answer.what.replace('_', ' '))}, 95% band")
    panel.set_ylim(-0.03, 1.03)
    tidy(panel)
    if answer.curves:
        scale_steps(panel, sorted({point.step for each in answer.curves for point in each.curve}))
        title = parameter_label(answer.by) if answer.by else None
        legend_below(figure, {str(line.get_label()): line for line in panel.get_lines()}, title, 1)
    return figure


def importance_figure(answer: Importance) -> Figure:
    """A bar per parameter with the mark that chance reaches in one shuffle of twenty."""
    figure, panel = new_figure(1.3 * WIDTH, 1.4 + 0.35 * max(len(answer.parameters), 1))
    places = list(range(len(answer.parameters)))
    panel.barh(places, [each.importance for each in answer.parameters], color=BLUE, height=0.6)
    chance = [each.chance for each in answer.parameters]
    marks = panel.plot(chance, places, linestyle="none", marker="|", markersize=14, color=VERMILION)
    panel.set_yticks(places, [parameter_label(each.parameter) for each in answer.parameters])
    panel.invert_yaxis()
    panel.set_xlabel("PED-ANOVA importance (Pearson divergence)")
    title = answer.note or f"{answer.objective}: {answer.n_best:,} best of {answer.n_trials:,} trials"
    panel.set_title(title, fontsize=LABEL_SIZE)
    tidy(panel, "x")
    if answer.parameters:
        legend_below(figure, {"reached by 5% of shuffles": marks[0]})
    return figure


def comparison_figure(answer: SweepComparison) -> Figure:
    """The difference in the stuck rate, in each outcome, and in each group: B less A, with intervals."""
    rows = [("stuck rate", answer.stuck)]
    rows += [(outcome.replace("_", " "), each) for outcome, each in answer.outcomes.items()]
    rows += [(f"stuck rate, {parameter_label(answer.by)} {each.label}", each.stuck) for each in answer.groups]
    figure, panel = new_figure(1.5 * WIDTH, 1.2 + 0.3 * len(rows))
    panel.axvline(0, color=GREY, linewidth=0.8)
    for place, (_, each) in enumerate(rows):
        if each.value is None or each.low is None or each.high is None:
            continue
        bounds = reach(each.value, each.low, each.high)
        colour, marker = (VERMILION, "s") if each.is_shown else (BLUE, "o")
        panel.errorbar(each.value, place, xerr=bounds, fmt=marker, color=colour, markersize=4, linewidth=1.2, capsize=2)
    panel.set_yticks(range(len(rows)), [label for label, _ in rows])
    panel.invert_yaxis()
    panel.set_xlabel("change of the share of trainings, B less A (95% interval)")
    panel.set_title(answer.how(), fontsize=NOTE_SIZE)
    tidy(panel, "x")
    return figure


def _draw_rates(panel: Axes, rates: Sequence[tuple[float, Rate]], group: int, label: str) -> None:
    """Points with intervals, at their places, in the style of a group; rates of nothing are left out."""
    colour, _, marker = GROUP_STYLES[group % len(GROUP_STYLES)]
    known = [
        (place, rate.share, *(ends[0] for ends in reach(rate.share, rate.low, rate.high)))
        for place, rate in rates
        if rate.share is not None and rate.low is not None and rate.high is not None
    ]
    if known:
        places, shares, down, up = (list(column) for column in zip(*known, strict=True))
        panel.errorbar(
            places,
            shares,
            yerr=[down, up],
            fmt=marker,
            color=colour,
            markersize=4,
            linewidth=1.2,
            capsize=2,
            label=label,
        )
