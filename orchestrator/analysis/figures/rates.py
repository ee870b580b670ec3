"""Figures of a sweep: rates by parameter, roles by step."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.figures.style import (
    BLUE,
    DPI,
    GREY,
    HEIGHT,
    LABEL_SIZE,
    NOTE_SIZE,
    WIDTH,
    figure_text,
    legend_below,
    name_places,
    reach,
    role_colour,
    scale_logarithmic,
    scale_steps,
    tidy,
)
from attnsweep.orchestrator.analysis.labels import parameter_label
from attnsweep.orchestrator.analysis.rates import ParameterRates, RateBin
from attnsweep.orchestrator.analysis.roles.emergence import RoleEmergence
from attnsweep.orchestrator.analysis.roles.findings import RoleFindings

_DASHES = ("-", "--", "-.", ":")
_MOST_COLUMNS = 3
_WIDE = 10
"""Values of a choice, above which a panel is wider than others."""


def stuck_rate_figure(rates: Sequence[ParameterRates], title: str = "") -> Figure:
    """The stuck rate against each swept parameter: one panel each, 95% intervals, trials per bin above.

    Args:
        rates: From `rates_by`; at least one.
        title: Above all panels.
    """
    figure, panels = _panels(len(rates), title)
    for panel, each in zip(panels, rates, strict=True):
        _draw(panel, each)
    if len(rates) == 1 and rates[0].bins[0].low is None:
        figure.set_figwidth(WIDTH * max(1.0, len(rates[0].bins) / _WIDE))
    for panel in panels[::_MOST_COLUMNS]:
        panel.set_ylabel("stuck rate")
    return figure


def emergence_figure(roles: RoleFindings, title: str = "", layers: Sequence[int | None] = ()) -> Figure:
    """The share of trainings in which each role has come to stay, by step: one panel per layer, 95% bands.

    Lines connect what probes show; the steps are on a logarithmic axis where the first probes are close together.

    Args:
        roles: At least one.
        title: Above all panels.
        layers: Those that are drawn; default all.
    """
    layers = layers or list(dict.fromkeys(each.layer for each in roles.emergence))
    figure, panels = _panels(len(layers), title)
    for panel, layer in zip(panels, layers, strict=True):
        inside = [each for each in roles.emergence if each.layer == layer]
        for each in inside:
            _draw_emergence(panel, each, roles.names)
        n_trainings = max(each.n_trainings for each in inside)
        panel.set_title(f"{figure_text(roles.layer_title(layer))}, {n_trainings:,} trainings", fontsize=LABEL_SIZE)
        scale_steps(panel, sorted({point.step for each in inside for point in each.curve}))
        tidy(panel)
    for panel in panels[::_MOST_COLUMNS]:
        panel.set_ylabel("share of trainings with the role")
    legend_below(figure, {str(line.get_label()): line for panel in panels for line in panel.get_lines()})
    return figure


def _panels(n: int, title: str) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels whose vertical axis is a share, in rows of up to three."""
    n_columns = min(n, _MOST_COLUMNS)
    n_rows = math.ceil(n / n_columns)
    size = (WIDTH * n_columns, HEIGHT * n_rows + 0.3 * bool(title))
    figure = Figure(figsize=size, layout="constrained", dpi=DPI)
    axes = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False)
    axes[0, 0].set_ylim(-0.03, 1.03)
    for panel in axes.flat[n:]:
        panel.set_visible(False)
    if title:
        figure.suptitle(title, fontsize=LABEL_SIZE + 1)
    return figure, list(axes.flat[:n])


def _draw_emergence(panel: Axes, each: RoleEmergence, roles: Sequence[str]) -> None:
    steps = [point.step for point in each.curve]
    low, high = [point.low for point in each.curve], [point.high for point in each.curve]
    colour = role_colour(each.role, roles)
    panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    panel.plot(
        steps,
        [point.share for point in each.curve],
        color=colour,
        linestyle=_DASHES[roles.index(each.role) % len(_DASHES)],
        linewidth=1.4,
        marker="o",
        markersize=2.5,
        label=each.role,
        clip_on=False,
    )


def _draw(panel: Axes, rates: ParameterRates) -> None:
    is_log, low, high = getattr(rates.dimension, "log", False), rates.bins[0].low, rates.bins[-1].high
    if is_log and low is not None and high is not None:
        scale_logarithmic(panel, "x", low, high)
    positions = [_position(each, index, is_log=is_log) for index, each in enumerate(rates.bins)]
    for position, each in zip(positions, rates.bins, strict=True):
        share, low, high = each.rate.share, each.rate.low, each.rate.high
        if share is None or low is None or high is None:
            continue
        left, right = (position if each.low is None else each.low), (position if each.high is None else each.high)
        panel.errorbar(
            position,
            share,
            xerr=[[position - left], [right - position]],
            yerr=reach(share, low, high),
            fmt="o",
            color=BLUE,
            markersize=4,
            linewidth=1.2,
            capsize=2,
            clip_on=False,
        )
        panel.annotate(
            f"{each.n_trials:,}",
            (position, 1),
            (0, 2),
            ("data", "axes fraction"),
            "offset points",
            ha="center",
            fontsize=NOTE_SIZE,
            color=GREY,
        )
    if any(each.low is None for each in rates.bins):
        name_places(panel, [each.label for each in rates.bins])
        panel.set_xlim(-0.5, len(positions) - 0.5)
    label = parameter_label(rates.parameter)
    panel.set_xlabel(f"{label}\n({figure_text(rates.where, 44)})" if rates.where else label)
    panel.annotate(
        "trials", (0, 1), (-4, 2), "axes fraction", "offset points", ha="right", fontsize=NOTE_SIZE, color=GREY
    )
    tidy(panel)


def _position(each: RateBin, index: int, *, is_log: bool) -> float:
    """Where a bin's point stands: its middle on the axis' own scale, or its number."""
    if each.low is None or each.high is None:
        return float(index)
    return math.sqrt(each.low * each.high) if is_log else (each.low + each.high) / 2
