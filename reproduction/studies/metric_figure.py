"""The figure of the study of merged and factored attention."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.rates.intervals import binomial_rate

_COLOURS = {"merged": "#0072B2", "factored": "#D55E00"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What the figure shows.

    Attributes:
        runaways: By form: (sigma, runaways, trainings) of each draw.
        escapes: By form: (sigma, quartiles of the steps to leave the zero) of each draw.
        share: The derived share of runaways at a sigma, merged.
        growth: ln(1 + learning rate * lambda) of the faster mode, per step.
    """

    runaways: dict[str, list[tuple[float, int, int]]]
    escapes: dict[str, list[tuple[float, float, float, float]]]
    share: Callable[[float], float]
    growth: float


def metric_figure(measured: Measured) -> Figure:
    """Shares of runaways, and escape times, against sigma; lines: the derived share, and derived slopes of times."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2)
    for form, found in measured.runaways.items():
        for sigma, k, n in found:
            rate = binomial_rate(k, n)
            if rate.share and rate.low is not None and rate.high is not None:
                error = [[rate.share - rate.low], [rate.high - rate.share]]
                left.errorbar([sigma], [rate.share], error, fmt="o", markersize=4, color=_COLOURS[form])
    for form, found_times in measured.escapes.items():
        for sigma, low, middle, high in found_times:
            error = [[middle - low], [high - middle]]
            right.errorbar([sigma], [middle], error, fmt="o", markersize=4, color=_COLOURS[form])
    _draw_laws(left, right, measured)
    left.set_ylabel("share of runaways (95% intervals)")
    right.set_ylabel("steps at the zero (median, quartiles)")
    for panel in (left, right):
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel(r"init_sigma $\sigma$")
        panel.spines[["top", "right"]].set_visible(False)
        for form, colour in _COLOURS.items():
            panel.plot([], [], "o", markersize=4, color=colour, label=form)
        panel.legend(frameon=False, fontsize=8)
    return figure


def _draw_laws(left: Axes, right: Axes, measured: Measured) -> None:
    x = np.geomspace(min(measured.runaways["merged"])[0], 0.1, 50)
    left.plot(x, [measured.share(sigma) for sigma in x], color=_COLOURS["merged"], linewidth=0.8)
    for form, found in measured.escapes.items():
        sigma, _, middle, _ = min(found)
        x = np.geomspace(sigma, 0.1, 50)
        law = middle - np.log(x / sigma) / measured.growth if form == "merged" else middle * sigma / x
        right.plot(x, law, color=_COLOURS[form], linewidth=0.8)
