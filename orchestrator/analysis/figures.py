"""Figures of a sweep, drawn without pyplot: no global state, no display, safe in a thread."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.analysis.emergence import RoleEmergence
from orchestrator.analysis.rates import ParameterRates, RateBin
from orchestrator.analysis.role_findings import RoleFindings

BLUE, GREY = "#0072B2", "#595959"
"""Okabe & Ito 2008: told apart by the colour-blind, and in print."""
_ROLE_STYLES = (("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"))
"""The same colours, and dashes, by role; a fifth role begins again."""

_LABELS = {
    "init_sigma": r"initialization $\sigma$",
    "learning_rate": r"learning rate $\eta$",
    "layer_norm_eps": r"layer-norm $\varepsilon$ (inside the root)",
    "attention_scale": "attention scale (factor of the logits)",
    "window": r"band half-width $w$ (tokens)",
    "num_pos": "rare-token columns",
    "n_categories": r"categories $N$",
    "n_positions": r"text length $M$ (tokens)",
    "n_steps": "optimizer steps",
    "batch_size": "batch size (texts)",
    "train_length": r"training length $n$ (symbols)",
}
_MOST_COLUMNS = 3
_MANYFOLD = 10
"""Times the first probe's step, from which the axis of steps is logarithmic."""


def parameter_label(name: str) -> str:
    """A parameter as an axis names it: words, symbol, unit."""
    return _LABELS.get(name, name.replace("_", " "))


def stuck_rate_figure(rates: Sequence[ParameterRates], title: str = "") -> Figure:
    """The stuck rate against each swept parameter: one panel each, 95% intervals, trials per bin above.

    Args:
        rates: From `rates_by`; at least one.
        title: Above all panels.
    """
    n_columns = min(len(rates), _MOST_COLUMNS)
    n_rows = math.ceil(len(rates) / n_columns)
    figure = Figure(figsize=(3.4 * n_columns, 2.7 * n_rows + 0.3 * bool(title)), layout="constrained", dpi=200)
    axes = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False)
    for panel, each in zip(axes.flat, rates, strict=False):
        _draw(panel, each)
    for panel in axes.flat[len(rates) :]:
        panel.set_visible(False)
    for panel in axes[:, 0]:
        panel.set_ylabel("stuck rate")
        panel.set_ylim(-0.03, 1.03)
    if title:
        figure.suptitle(title, fontsize=10)
    return figure


def emergence_figure(roles: RoleFindings, title: str = "") -> Figure:
    """The share of trainings in which each role has come to stay, by step: one panel per layer, 95% bands.

    Lines connect what probes show; the steps are on a logarithmic axis where the first probes are close together.

    Args:
        roles: At least one.
        title: Above all panels.
    """
    layers = list(dict.fromkeys(each.layer for each in roles.emergence))
    names = list(dict.fromkeys(rate.role for rate, _ in roles.rows()))
    n_columns = min(len(layers), _MOST_COLUMNS)
    n_rows = math.ceil(len(layers) / n_columns)
    figure = Figure(figsize=(3.4 * n_columns, 2.7 * n_rows + 0.6), layout="constrained", dpi=200)
    axes = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False)
    for panel, layer in zip(axes.flat, layers, strict=False):
        for each in roles.emergence:
            if each.layer == layer:
                colour, dashes = _ROLE_STYLES[names.index(each.role) % len(_ROLE_STYLES)]
                draw_emergence(panel, each, colour, dashes)
        n_trainings = max(each.n_trainings for each in roles.emergence if each.layer == layer)
        panel.set_title(f"{roles.layer_title(layer)}, {n_trainings} trainings", fontsize=8)
        panel.set_xlabel("optimizer steps")
        scale_steps(panel, sorted({point.step for each in roles.emergence for point in each.curve}))
        tidy(panel)
    for panel in axes.flat[len(layers) :]:
        panel.set_visible(False)
    for panel in axes[:, 0]:
        panel.set_ylabel("trainings with the role")
        panel.set_ylim(-0.03, 1.03)
    lines = {line.get_label(): line for panel in axes.flat for line in panel.get_lines()}
    figure.legend(
        lines.values(), [name.replace("_", " ") for name in lines], loc="outside lower center", ncols=4, fontsize=8
    )
    if title:
        figure.suptitle(title, fontsize=10)
    return figure


def draw_emergence(panel: Axes, each: RoleEmergence, colour: str, dashes: str) -> None:
    """A role's emergence curve with its band, labelled with the role."""
    steps = [point.step for point in each.curve]
    low, high = [point.low for point in each.curve], [point.high for point in each.curve]
    panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    panel.plot(
        steps,
        [point.share for point in each.curve],
        color=colour,
        linestyle=dashes,
        linewidth=1.4,
        marker="o",
        markersize=2.5,
        label=each.role,
        clip_on=False,
    )


def scale_steps(panel: Axes, steps: Sequence[int]) -> None:
    """Room for early probes, which workloads place closer together than late ones."""
    first = next((step for step in steps if step > 0), 0)
    if first and steps[-1] >= _MANYFOLD * first and len(steps) < steps[-1] / first / 2:
        panel.set_xscale("symlog", linthresh=first, linscale=0.5)
        panel.minorticks_off()
    panel.set_xlim(left=0)


def _draw(panel: Axes, rates: ParameterRates) -> None:
    is_log = getattr(rates.dimension, "log", False)
    if is_log:
        panel.set_xscale("log")
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
            yerr=[[max(share - low, 0.0)], [max(high - share, 0.0)]],
            fmt="o",
            color=BLUE,
            markersize=4,
            linewidth=1.2,
            capsize=2,
            clip_on=False,
        )
        panel.annotate(
            f"{each.n_trials}",
            (position, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=6,
            color=GREY,
        )
    if any(each.low is None for each in rates.bins):
        panel.set_xticks(positions, [each.label for each in rates.bins])
        panel.set_xlim(-0.5, len(positions) - 0.5)
    label = parameter_label(rates.parameter)
    panel.set_xlabel(f"{label}\n({rates.where})" if rates.where else label)
    panel.annotate(
        "trials",
        (0, 1),
        xycoords="axes fraction",
        xytext=(-4, 2),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=6,
        color=GREY,
    )
    tidy(panel)


def tidy(panel: Axes) -> None:
    """The look of all panels."""
    panel.grid(axis="y", color="0.9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)


def _position(each: RateBin, index: int, *, is_log: bool) -> float:
    """Where a bin's point stands: its middle on the axis' own scale, or its number."""
    if each.low is None or each.high is None:
        return float(index)
    return math.sqrt(each.low * each.high) if is_log else (each.low + each.high) / 2
