"""The figures and numbers of docs/zeros.md on system P (attention by positions): the zero of the gradient, the plateau
at the mean predictor, the valley at infinity (a descent along which the weights grow without end), and saturated
softmax.

System P is the variant `positions_only`. Its trainings run in this process: there is no sweep.
Axes: L training, P probe.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.reproduction.comparison import ComparedValue, Comparison, framed, save_figure
from attnsweep.reproduction.rows import Claim, share_row, value_row
from attnsweep.reproduction.trained import Trained, one_thread, trained
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.certificates import certify
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.vocabulary import AT_LEVEL

WORKLOAD = CategoryPairs()
N, M = 10, 20
"""The numbers of categories and of positions, unless stated otherwise."""
INFIMUM = (1 - 1 / N) / M
"""The loss that descent along the valley at infinity (where weights grow without end) approaches and never reaches."""
SIGMAS, LEARNING_RATES = (1e-3, 1e-2, 1e-1), (0.003, 0.01, 0.03)
"""The values of init_sigma and of the learning rate at which runaways (trainings whose weights grow without end) are
counted."""
Ended = Trained[CategoryPairsParameters]
NEARLY_ALL = (0.8, 1.0)
_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#D55E00", "#009E73", "#595959"
_PASSING_SIGMA = 1e-3
"""The standard deviation of initializations that start near the zero of the gradient."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The number of seeds, and of steps, for each of the three figures in this study of attention by positions alone.

    Attributes:
        n_passing, n_valley, n_softmax: The numbers of seeds for the plateaus, for the valley at infinity, and for
            softmax.
        valley_time: Learning rate times number of steps of the trainings among which runaways (whose weights grow
            without end) are counted.
        passing_steps, valley_steps, softmax_steps: Steps of the trainings in the three figures.
        first_seed: The first of the seeds.
    """

    n_passing: int = 64
    n_valley: int = 256
    n_softmax: int = 64
    valley_time: float = 60.0
    passing_steps: int = 2000
    valley_steps: int = 20_000
    softmax_steps: int = 30_000
    first_seed: int = 0


FULL_SIZE = Size()


def fastest_rate(N: int, M: int) -> float:
    """lambda_+ of docs/theory.md: near the zero a step multiplies small weights by 1 + learning_rate * lambda_+ at
    most."""
    return 2 / N * math.sqrt((M - 1) * ((N - 1 + M) / 2 + math.sqrt(((M - N + 1) / 2) ** 2 + N - 1)))


def reproduce(directory: Path, console: Console, size: Size = FULL_SIZE) -> Comparison:
    """Trains some thousand small models whose attention depends on positions only, and draws their losses in three
    figures."""
    rows: list[ComparedValue] = []
    figures: list[Path] = []
    with one_thread():
        for name, part in (("plateaus", _plateaus), ("valley", _valley), ("softmax", _softmax)):
            console.print(f"training for positions_{name}")
            figure, part_rows = part(size)
            figures += save_figure(figure, directory, f"positions_{name}")
            rows += part_rows
    return Comparison(
        title="System P: the zero, the mean plateau, the valley at infinity, softmax saturation",
        source="attnsweep, docs/zeros.md; derivations: docs/theory.md",
        rows=rows,
        figures=figures,
        notes=[
            f"N = {N} categories and M = {M} positions, unless stated otherwise. The loss is the population loss.",
            "Step at which the zero is left: the median over seeds of the first probe whose level is below the "
            "midpoint of the zero's and the mean predictor's. Derived as ln(1/sigma) / (learning rate * lambda_+).",
            "(1 - 1/N)/M is the infimum of the level along the valley; no training reaches it.",
        ],
    )


def _train(n_seeds: int, first_seed: int, **values: Value) -> Ended:
    values = {"n_categories": N, "n_positions": M} | values
    return trained(WORKLOAD, range(first_seed, first_seed + n_seeds), values, compiled=True)


def _level(ended: Ended) -> NDArray[np.float64]:
    return ended.evidence.metrics["eval_loss"]


def _plateaus(size: Size) -> tuple[Figure, list[ComparedValue]]:
    figure = Figure(figsize=(9.6, 3.4), layout="constrained", dpi=160)
    axes = figure.subplots(1, 2, sharey=True)
    rows: list[ComparedValue] = []
    for panel, (n, m, learning_rate) in zip(axes, ((10, 20, 0.01), (3, 40, 0.005)), strict=True):
        sizes: dict[str, Value] = {"n_categories": n, "n_positions": m, "learning_rate": learning_rate}
        ended = _train(
            size.n_passing,
            size.first_seed,
            **sizes,
            init_sigma=_PASSING_SIGMA,
            n_steps=size.passing_steps,
            stop_when_solved=False,
        )
        _draw_plateaus(panel, ended, n, m, learning_rate)
        rows += _plateau_rows(ended, n, m, learning_rate)
    axes[0].set_ylabel("level (loss per predicted position)")
    return figure, rows


def _draw_plateaus(panel: Axes, ended: Ended, n: int, m: int, learning_rate: float) -> None:
    panel.plot(ended.evidence.steps, _level(ended).T, color=_BLUE, linewidth=0.5, alpha=0.5)
    for name, value in (("zero", 1.0), ("mean", 1 - 1 / n), ("centred shift", 1 / n + 1 / m - 1 / (n * m))):
        panel.axhline(value, color=_GREY, linewidth=0.8, linestyle="--")
        panel.annotate(name, (1.0, value), xycoords=("axes fraction", "data"), fontsize=7, va="bottom", ha="right")
    panel.set_xscale("symlog", linthresh=10)
    panel.set_xlim(left=0)
    framed(panel, xlabel="gradient steps")
    panel.set_title(rf"N = {n}, M = {m}, $\sigma$ = {_PASSING_SIGMA:g}, learning rate {learning_rate:g}", fontsize=9)


def _plateau_rows(ended: Ended, n: int, m: int, learning_rate: float) -> list[ComparedValue]:
    mean = 1 - 1 / n
    left_zero = ended.evidence.steps[np.argmax(_level(ended) < 0.5 * (1 + mean), axis=1)]
    derived = np.log(1 / _PASSING_SIGMA) / (learning_rate * fastest_rate(n, m))
    is_near = np.any(np.abs(_level(ended) - mean) < AT_LEVEL * mean, axis=1)
    name = f"N = {n}, M = {m}"
    return [
        value_row(f"{name}: step at which the zero is left", float(np.median(left_zero)), f"{derived:.0f} (derived)"),
        _share(f"{name}: within 1% of the mean predictor's level at some probe", np.asarray(is_near)),
        _outcomes_row(name, ended),
    ]


def _valley(size: Size) -> tuple[Figure, list[ComparedValue]]:
    figure, followed = _followed(size)
    return figure, [*(runaways(size, sigma, rate) for sigma in SIGMAS for rate in LEARNING_RATES), *followed]


def _followed(size: Size) -> tuple[Figure, list[ComparedValue]]:
    ended = _train(size.n_valley, size.first_seed, init_sigma=1e-2, learning_rate=0.01, n_steps=size.valley_steps)
    is_runaway = ended.outcome == "runaway"
    rows = [_share(f"init_sigma 0.01, learning rate 0.01, {size.valley_steps:,} steps: runaway", is_runaway)]
    if is_runaway.any():
        rows += _runaway_rows(ended, is_runaway)
    return _valley_figure(ended, is_runaway), rows


def runaways(size: Size, sigma: float, learning_rate: float) -> ComparedValue:
    """Returns a row with the rate of runaways (trainings whose weights grow without end) at one init_sigma and one
    learning rate."""
    n_steps = round(size.valley_time / learning_rate)
    values: dict[str, Value] = {"init_sigma": sigma, "learning_rate": learning_rate, "n_steps": n_steps}
    ended = _train(size.n_valley, size.first_seed, **values)
    name = f"init_sigma {sigma:g}, learning rate {learning_rate:g}, {n_steps:,} steps: runaway"
    return _share(name, ended.outcome == "runaway")


def _runaway_rows(ended: Ended, is_runaway: NDArray[np.bool_]) -> list[ComparedValue]:
    runaway = np.flatnonzero(is_runaway)
    lanes, state = ended.pack.final_state(runaway)
    module = WORKLOAD.build(lanes.shared).double()
    certificates = certify(module, WORKLOAD.loss, lanes, state, ended.outcome[runaway])
    solved = sum(certificate is not None and certificate.agrees for certificate in certificates)
    norm, level = ended.evidence.metrics["param_norm"][runaway], float(np.median(_level(ended)[runaway, -1]) / INFIMUM)
    all_solved: Claim = {"published": "all (derived)", "agrees_within": NEARLY_ALL}
    return [
        share_row("  of these, solved after the reset vP := alpha P", solved, len(runaway), **all_solved),
        value_row("  their level at the end / (1 - 1/N)/M, median", level, "above 1 (derived)"),
        value_row("  |theta| at the end / at its least, median", float(np.median(norm[:, -1] / norm.min(axis=1)))),
    ]


def _valley_figure(ended: Ended, is_runaway: NDArray[np.bool_]) -> Figure:
    figure = Figure(figsize=(9.6, 3.4), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2)
    steps, norm = ended.evidence.steps, ended.evidence.metrics["param_norm"]
    is_solved = ended.outcome == "solved"
    for panel, values, label in ((left, _level(ended), "level"), (right, norm, r"$|\theta|$")):
        panel.loglog(steps, values[is_solved].T, color=_GREEN, linewidth=0.4, alpha=0.15)
        panel.loglog(steps, values[is_runaway].T, color=_ORANGE, linewidth=0.6, alpha=0.6)
        framed(panel, ylabel=label, xlabel="gradient steps")
    left.axhline(INFIMUM, color=_GREY, linewidth=0.8, linestyle="--")
    left.annotate("(1 - 1/N)/M, never reached", (1, INFIMUM), fontsize=7, va="bottom")
    left.plot([], [], color=_ORANGE, label="runaway")
    left.plot([], [], color=_GREEN, label="solved")
    left.legend(frameon=False, fontsize=8, loc="lower left")
    return figure


def _softmax(size: Size) -> tuple[Figure, list[ComparedValue]]:
    """Measures how slowly the loss falls in a model that attends by positions only, through a softmax."""
    ended = _train(
        size.n_softmax,
        size.first_seed,
        attention_activation="softmax",
        init_sigma=0.1,
        learning_rate=0.03,
        n_steps=size.softmax_steps,
        stop_when_solved=False,
    )
    steps, level = ended.evidence.steps, _level(ended)
    tail = steps >= size.softmax_steps // 4
    slope = np.array([np.polyfit(np.log(steps[tail]), np.log(curve[tail]), 1)[0] for curve in level])
    low, middle, high = np.quantile(slope, [0.25, 0.5, 0.75])
    rows = [
        _outcomes_row("softmax", ended),
        value_row(
            "softmax: slope of log level against log step, last 75% of the steps",
            f"{middle:.2f} (quartiles {low:.2f}, {high:.2f})",
            "-1 (derived)",
        ),
        value_row(
            "softmax: level at the end, quartiles",
            ", ".join(f"{quartile:.5f}" for quartile in np.quantile(level[:, -1], [0.25, 0.5, 0.75])),
        ),
    ]
    return _softmax_figure(steps, level), rows


def _softmax_figure(steps: NDArray[np.int64], level: NDArray[np.float64]) -> Figure:
    figure = Figure(figsize=(5.2, 3.4), layout="constrained", dpi=160)
    panel = figure.subplots()
    panel.loglog(steps, level.T, color=_BLUE, linewidth=0.5, alpha=0.5)
    guide = steps[steps > steps[-1] // 30]
    heights = 0.5 * np.median(level[:, -1]) * steps[-1] / guide
    panel.loglog(guide, heights, color="black", linewidth=1)
    panel.annotate(r"$\propto t^{-1}$", (guide[0], heights[0]), fontsize=8, ha="right")
    panel.axhline(0.01, color=_GREY, linewidth=0.8, linestyle="--")
    panel.annotate("solved", (1, 0.01), fontsize=7, va="bottom")
    framed(panel, xlabel="gradient steps", ylabel="level")
    return figure


def _share(name: str, holds: NDArray[np.bool_]) -> ComparedValue:
    return share_row(name, int(holds.sum()), holds.size)


def _outcomes_row(name: str, ended: Ended) -> ComparedValue:
    outcomes, counts = np.unique(ended.outcome, return_counts=True)
    ours = ", ".join(f"{count} {outcome}" for outcome, count in zip(outcomes, counts, strict=True))
    return value_row(f"{name}: outcomes", ours)
