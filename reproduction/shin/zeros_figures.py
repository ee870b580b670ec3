"""Figures of `shin-zeros`: the stationary points, and the valley at infinity. Axes: L descent, S step."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from attnsweep.reproduction.comparison import framed
from attnsweep.reproduction.shin.equations import objective_of
from attnsweep.reproduction.shin.equations_of_positions import centred_shift_level, valley_level
from attnsweep.reproduction.shin.zeros_search import FAMILIES, SIZES, Family, FoundPoints
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.engine.streams import Streams

_COLOURS = {
    "solution": "#009E73",
    "centred_shift": "#E69F00",
    "mean": "#56B4E9",
    "marginal": "#0072B2",
    "zero": "#D55E00",
    "zero_row_sums": "#CC79A7",
    "zero_diagonal": "#595959",
}
"""The colour of each family, from Okabe & Ito 2008."""
_LEVELS = {
    "E Y^2": r"$E\,Y^2$",
    "E Y^2 - G": r"$E\,Y^2 - G$",
    "V*": r"$E\,\mathrm{Var}(Y|X_i)$",
}
_MARKERS = "os^D"
_SOLVED, _TRAPPED, _GREY = "#0072B2", "#D55E00", "#595959"
_N, _M, _INIT_SIGMA, _LEARNING_RATE, _N_STEPS = 10, 20, 0.3, 0.01, 6000
"""Settings of the descents that are drawn."""
_TITLES = {"P": "System P (attention on positions)", "C": "System C (attention on categories)"}


def stationary_points_figure(points: Mapping[str, FoundPoints]) -> Figure:
    """Draws the losses of stationary points against their Hessian indices, for systems P and C, by family and size."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained", dpi=200)
    panels = figure.subplots(1, len(points), sharey=True)
    for panel, (system, system_points) in zip(panels, points.items(), strict=True):
        _draw_points(panel, system_points, FAMILIES[system])
        panel.set_title(_TITLES[system], fontsize=9)
    panels[0].set_ylabel("level (share of the zero's)")
    marks = [
        Line2D([], [], marker=marker, color=_GREY, linestyle="", markersize=4, label=f"N = {N}, M = {M}")
        for marker, (N, M) in zip(_MARKERS, SIZES, strict=True)
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), fontsize=7, frameon=False)
    return figure


def valley_figure(n_descents: int = 24, n_steps: int = _N_STEPS) -> Figure:
    """Draws the loss of the best q as a function of rho, the valley's coordinate, with runs of gradient descent."""
    figure = Figure(figsize=(7.2, 3.8), layout="constrained", dpi=200)
    panel = figure.subplots()
    _draw_descents(panel, n_descents, n_steps)
    _draw_valley(panel)
    panel.legend(loc="upper left", fontsize=7, frameon=False)
    return figure


def _draw_points(panel: Axes, points: FoundPoints, families: Sequence[Family]) -> None:
    for family in families:
        name = family.name
        for size, marker in enumerate(_MARKERS):
            chosen = (points.family == name) & (points.size == size)
            # Points of one index are spread sideways, because many of them have the same level and would cover each
            # other.
            shift = np.array([_place(family, families, index) for index in points.index[chosen]])
            spread = 0.18 * (np.arange(chosen.sum()) * 0.618 % 1 - 0.5)
            panel.plot(
                points.index[chosen] + shift + spread,
                points.level[chosen],
                marker,
                color=_COLOURS[name],
                markersize=3,
                markeredgewidth=0,
                alpha=0.6,
                label=f"{name.replace('_', ' ')}: {_LEVELS.get(family.level, family.level)}" if size == 0 else None,
            )
    framed(panel, xlabel="Hessian index (directions of descent)", xticks=range(4))
    panel.set_xlim(-0.5, 3.5)
    panel.set_ylim(-0.05, 1.05)
    panel.grid(axis="y", color="0.9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.legend(loc="lower right", fontsize=7, frameon=False, markerscale=1.6, handletextpad=0.0, borderaxespad=0.0)


def _place(family: Family, families: Sequence[Family], index: int) -> float:
    """Returns how far a family's marker is moved sideways, because several families share one Hessian index."""
    sharing = [other.name for other in families if index in other.indices]
    if family.name not in sharing:
        return 0.0
    return 0.24 * (sharing.index(family.name) - (len(sharing) - 1) / 2)


def _draw_valley(panel: Axes) -> None:
    rho = torch.linspace(-9.0, 4.0, 1301, dtype=torch.float64)
    panel.plot(rho, valley_level(rho, _N, _M), color="black", linewidth=1.8, label=r"best $q$: $L(\rho)$", zorder=4)
    infimum, top = (1 - 1 / _N) / _M, centred_shift_level(_N, _M)
    panel.axhline(infimum, color=_GREY, linestyle="--", linewidth=0.8)
    panel.plot(-(_N - 1) / _M, top, "D", color="#E69F00", markersize=6, zorder=5)
    panel.plot(1.0, 0.0, "o", color="#009E73", markersize=7, zorder=5, clip_on=False)
    panel.plot(0.0, 1 / _N, "s", color=_GREY, markersize=5, zorder=5)
    notes = (
        ((-(_N - 1) / _M, top), (-2.15, 0.2), "barrier: centred shift (3.33)\n$1/N + 1/M - 1/(NM)$"),
        ((0.0, 1 / _N), (-2.2, 0.068), r"$\alpha\beta = 0$: level $1/N$"),
        ((1.0, 0.0), (-0.7, 0.015), "solution"),
    )
    for point, text_at, text in notes:
        panel.annotate(
            text,
            point,
            text_at,
            fontsize=7,
            va="center",
            arrowprops={"arrowstyle": "-", "color": _GREY, "linewidth": 0.6},
        )
    panel.annotate(
        r"infimum $(1 - 1/N)/M$, as $\rho \to -\infty$", (-8.9, infimum - 0.004), fontsize=7, va="top", color=_GREY
    )
    panel.set_xlim(-9.0, 4.0)
    panel.set_ylim(0.0, 0.3)
    panel.set(xlabel=r"$\rho = \beta / \alpha$ of the value matrix", ylabel="level (loss per predicted position)")
    panel.set_title(
        rf"System P, $N = {_N}$, $M = {_M}$; gradient descents from $N(0, {_INIT_SIGMA}^2)$, rate {_LEARNING_RATE}",
        fontsize=9,
    )
    panel.spines[["top", "right"]].set_visible(False)


def _draw_descents(panel: Axes, n_descents: int, n_steps: int) -> None:
    rho_SL, level_SL = _descents(n_descents, n_steps)
    is_solved = level_SL[-1] < (1 - 1 / _N) / _M
    is_trapped = ~is_solved & (rho_SL[-1] < 0) & (level_SL[-1] < 1 / _N)
    for colour, chosen, text in (
        (_SOLVED, is_solved, "descents that solve"),
        (_TRAPPED, is_trapped, "descents in the valley"),
        (_GREY, ~is_solved & ~is_trapped, "descents elsewhere"),
    ):
        label: str | None = f"{text}: {int(chosen.sum())} of {n_descents}"
        for lane in np.flatnonzero(chosen):
            panel.plot(rho_SL[:, lane], level_SL[:, lane], color=colour, linewidth=0.7, alpha=0.8, label=label)
            panel.plot(rho_SL[-1, lane], level_SL[-1, lane], ".", color=colour, markersize=4)
            label = None


def _descents(n_descents: int, n_steps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Runs gradient descent on the population loss from N(0, _INIT_SIGMA^2). Returns rho and the loss, (S, L) each."""
    system = PositionsOnly(_N, _M, softmax=False)
    objective, streams = objective_of(system), Streams(torch.arange(n_descents))
    point = {name: _INIT_SIGMA * streams.normal(name, tuple(value.shape)) for name, value in system.named_parameters()}
    rho, levels = [], []
    for _ in range(n_steps):
        losses, gradients = objective.evaluate(point, 0)
        b = point["v_NN"].sum((1, 2)) / _N
        a = point["v_NN"].diagonal(dim1=1, dim2=2).sum(1) - b
        rho.append((_N - 1) * b / a)
        levels.append(losses / (_M - 1))
        point = {name: value - _LEARNING_RATE * gradients[name] for name, value in point.items()}
    return torch.stack(rho).numpy(), torch.stack(levels).numpy()
