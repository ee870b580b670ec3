"""The figures of `zeros-full`: clusters of outcomes, and outcomes by initialization. Axes: L training."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnsweep.reproduction.studies.judged import Judged
from attnsweep.workloads.category_pairs import full_outcomes
from attnsweep.workloads.diagnostics import outcomes

COLOURS = {
    "solved": "#009E73",
    "degenerate_zero": "#D55E00",
    "marginal": "#E69F00",
    "plateau": "#0072B2",
    "overfit": "#CC79A7",
    "diverged": "#000000",
}
"""Okabe & Ito 2008, by outcome."""
_FLOOR = 1e-6
"""The lower end of the scatter's axes; smaller values are drawn there."""
_CUT: dict[str, Any] = {"color": "0.4", "linewidth": 0.8, "linestyle": "--"}


def clusters_figure(judged: Judged, outcome: NDArray[np.str_]) -> Figure:
    """The relative gradient against the strength of attention, coloured by outcome, with the cut-offs."""
    figure = Figure(figsize=(9.6, 4), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2, sharey=True)
    no_softmax = judged.column("param_attention_activation") != "softmax"
    _draw_cluster(left, judged, "attention_product", outcome, no_softmax)
    _draw_cluster(right, judged, "ablation", outcome, np.ones_like(no_softmax))
    left.axvline(full_outcomes.DEAD_PRODUCT, **_CUT)
    right.axvline(full_outcomes.DEAD_ABLATION, **_CUT)
    left.set_xlabel(r"$|k|\,|q|\,|v|$ (trainings without softmax)")
    right.set_xlabel(r"answers moved by attention, share of Var $Y$ (all)")
    left.set_ylabel(r"$\gamma = |\nabla|\,|\theta| / $ loss")
    right.legend(frameon=False, fontsize=8, markerscale=2, loc="lower right")
    return figure


def _draw_cluster(
    panel: Axes, judged: Judged, metric: str, outcome: NDArray[np.str_], shown: NDArray[np.bool_]
) -> None:
    x, y = (np.clip(each, _FLOOR, None) for each in (judged.at_end(metric), judged.gamma))
    for name, colour in COLOURS.items():
        chosen = (outcome == name) & shown
        panel.loglog(x[chosen], y[chosen], "o", markersize=2.5, alpha=0.6, color=colour, label=name)
    panel.axhline(outcomes.STATIONARY_GAMMA, **_CUT)
    panel.spines[["top", "right"]].set_visible(False)


def by_sigma_figure(judged: Judged, outcome: NDArray[np.str_]) -> Figure:
    """Shares of outcomes by `init_sigma`, a panel for each combination of softmax and skip."""
    figure = Figure(figsize=(9.6, 3.4), layout="constrained", dpi=160)
    axes = figure.subplots(1, 4, sharey=True)
    cases = [("identity", True), ("identity", False), ("softmax", True), ("softmax", False)]
    activations, skips = judged.column("param_attention_activation"), judged.column("param_skip")
    for panel, (activation, skip) in zip(axes, cases, strict=True):
        _draw_shares(panel, judged, outcome, (activations == activation) & (skips == skip))
        panel.set_title(
            f"{'softmax' if activation == 'softmax' else 'no softmax'}, {'skip' if skip else 'no skip'}", fontsize=9
        )
    axes[0].set_ylabel("share of trainings")
    axes[-1].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _draw_shares(panel: Axes, judged: Judged, outcome: NDArray[np.str_], shown: NDArray[np.bool_]) -> None:
    sigma = judged.column("param_init_sigma")
    sigmas = sorted(set(sigma), key=lambda each: (each is None, each or 0.0))
    groups = [outcome[shown & np.array([each == value for each in sigma])] for value in sigmas]
    base = np.zeros(len(sigmas))
    for name, colour in COLOURS.items():
        shares = np.array([(group == name).mean() if group.size else 0.0 for group in groups])
        panel.bar(range(len(sigmas)), shares, bottom=base, color=colour, width=0.85, label=name)
        base += shares
    labels = ["default" if value is None else f"{value:g}" for value in sigmas]
    panel.set_xticks(range(len(sigmas)), labels, rotation=60, fontsize=7)
    panel.set_xlabel(r"initialization $\sigma$", fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
