"""Figures of answers, in the manner of `figures`: no pyplot, colours that the colour-blind tell apart."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.analysis.figures import BLUE, GREY, parameter_label, scale_steps, stuck_rate_figure, tidy
from orchestrator.analysis.importance import Importance
from orchestrator.analysis.intervals import Rate, rate_label
from orchestrator.analysis.onset import Onset
from orchestrator.analysis.rate_answers import OutcomeRates, StuckRates
from orchestrator.analysis.sweep_comparison import SweepComparison

_STYLES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#E69F00", "-", "v"),
    ("#56B4E9", "--", "P"),
    ("#000000", "-.", "X"),
)
"""Okabe & Ito 2008 with dashes and markers, by group; an eighth group begins again."""


def stuck_rates_figure(answer: StuckRates) -> Figure:
    """One panel per parameter; without any, the rate over all trials alone."""
    drawn = [each for each in answer.by_parameter if each.bins]
    if drawn:
        return stuck_rate_figure(drawn, title=f"stuck rate {rate_label(answer.overall)}")
    figure, panel = _figure(2.4, 2.8)
    _draw_rates(panel, [(0.0, answer.overall)], BLUE, "o", "")
    panel.set_xticks([0], ["all trials"])
    panel.set_ylabel("stuck rate")
    panel.set_ylim(-0.03, 1.03)
    return figure


def outcomes_figure(answer: OutcomeRates) -> Figure:
    """The rate of each outcome with its interval: groups side by side."""
    figure, panel = _figure(1.2 + 0.9 * max(len(answer.outcomes), 2), 3.2)
    width = 0.7 / max(len(answer.groups), 1)
    for index, (label, rates) in enumerate(zip(answer.groups, answer.rates, strict=True)):
        colour, _, marker = _STYLES[index % len(_STYLES)]
        shift = (index - (len(answer.groups) - 1) / 2) * width
        _draw_rates(panel, [(place + shift, rate) for place, rate in enumerate(rates)], colour, marker, label)
    names = [name.replace("_", "\n") for name in answer.outcomes]
    panel.set_xticks(range(len(names)), names)
    panel.set_ylabel("share of trainings, 95% interval")
    panel.set_ylim(-0.03, 1.03)
    if answer.by:
        panel.legend(title=parameter_label(answer.by), fontsize=7, title_fontsize=7)
    return figure


def onset_figure(answer: Onset) -> Figure:
    """The share that has come to it, by step, with its pointwise band: one line per group."""
    figure, panel = _figure(4.6, 3.2)
    for index, each in enumerate(answer.curves):
        colour, dashes, _ = _STYLES[index % len(_STYLES)]
        steps = [point.step for point in each.curve]
        low, high = [point.low for point in each.curve], [point.high for point in each.curve]
        panel.fill_between(steps, low, high, step="post", color=colour, alpha=0.18, linewidth=0)
        label = f"{each.label} ({each.n_trainings} trainings, {each.n_trials} trials)"
        shares = [point.share for point in each.curve]
        panel.step(steps, shares, where="post", color=colour, linestyle=dashes, linewidth=1.4, label=label)
    panel.set_xlabel("optimizer steps")
    panel.set_ylabel(f"share come to {answer.what.replace('_', ' ')}, 95% band")
    panel.set_ylim(-0.03, 1.03)
    if answer.curves:
        scale_steps(panel, sorted({point.step for each in answer.curves for point in each.curve}))
        title = parameter_label(answer.by) if answer.by else None
        panel.legend(title=title, fontsize=6, title_fontsize=7)
    return figure


def importance_figure(answer: Importance) -> Figure:
    """A bar per parameter with the mark that chance reaches in one shuffle of twenty."""
    figure, panel = _figure(4.6, 1.2 + 0.35 * max(len(answer.parameters), 1))
    places = list(range(len(answer.parameters)))
    panel.barh(places, [each.importance for each in answer.parameters], color=BLUE, height=0.6)
    chance = [each.chance for each in answer.parameters]
    panel.plot(chance, places, linestyle="none", marker="|", markersize=14, color="#D55E00", label="95% of shuffles")
    panel.set_yticks(places, [parameter_label(each.parameter) for each in answer.parameters])
    panel.invert_yaxis()
    panel.set_xlabel("PED-ANOVA importance (Pearson divergence)")
    panel.set_title(answer.note or f"{answer.objective}: {answer.n_best} best of {answer.n_trials} trials", fontsize=8)
    if answer.parameters:
        panel.legend(fontsize=7, loc="lower right", markerscale=0.6)
    return figure


def comparison_figure(answer: SweepComparison) -> Figure:
    """The difference in the stuck rate, in each outcome, and in each group: B less A, with intervals."""
    rows = [("stuck rate", answer.stuck)]
    rows += [(outcome.replace("_", " "), each) for outcome, each in answer.outcomes.items()]
    rows += [(f"stuck rate, {parameter_label(answer.by)} {each.label}", each.stuck) for each in answer.groups]
    figure, panel = _figure(5.2, 1.2 + 0.3 * len(rows))
    panel.axvline(0, color=GREY, linewidth=0.8)
    for place, (_, each) in enumerate(rows):
        if each.value is None or each.low is None or each.high is None:
            continue
        reach = [[max(each.value - each.low, 0.0)], [max(each.high - each.value, 0.0)]]
        colour, marker = ("#D55E00", "s") if each.is_shown else (BLUE, "o")
        panel.errorbar(each.value, place, xerr=reach, fmt=marker, color=colour, markersize=4, linewidth=1.2, capsize=2)
    panel.set_yticks(range(len(rows)), [label for label, _ in rows])
    panel.invert_yaxis()
    panel.set_xlabel("change of the share of trainings, B less A (95% interval)")
    panel.set_title(answer.how(), fontsize=7)
    return figure


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained", dpi=200)
    panel = figure.subplots()
    tidy(panel)
    return figure, panel


def _draw_rates(panel: Axes, rates: Sequence[tuple[float, Rate]], colour: str, marker: str, label: str) -> None:
    """Points with intervals, at their places; rates of nothing are left out."""
    known = [
        (place, rate.share, max(rate.share - rate.low, 0.0), max(rate.high - rate.share, 0.0))
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
