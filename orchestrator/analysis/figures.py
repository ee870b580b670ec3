"""Figures of a sweep, drawn without pyplot: no global state, no display, safe in a thread."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orchestrator.analysis.rates import ParameterRates, RateBin

_BLUE, _GREY = "#0072B2", "#595959"
"""Okabe & Ito 2008: told apart by the colour-blind, and in print."""

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
            color=_BLUE,
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
            color=_GREY,
        )
    if any(each.low is None for each in rates.bins):
        panel.set_xticks(positions, [each.label for each in rates.bins])
        panel.set_xlim(-0.5, len(positions) - 0.5)
    label = _LABELS.get(rates.parameter, rates.parameter.replace("_", " "))
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
        color=_GREY,
    )
    panel.grid(axis="y", color="0.9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)


def _position(each: RateBin, index: int, *, is_log: bool) -> float:
    """Where a bin's point stands: its middle on the axis' own scale, or its number."""
    if each.low is None or each.high is None:
        return float(index)
    return math.sqrt(each.low * each.high) if is_log else (each.low + each.high) / 2
