"""Figures and tables of docs/zeros.md on system P: the zero, the mean plateau, the valley, softmax saturation.

    python docs/figures/zeros_of_positions.py [--out docs/figures]

Trains some hundred lanes in this process (a minute on one core), writes positions_plateaus.png, positions_valley.png
and positions_softmax.png, and prints the figures of the text. Axes: L training, P probe.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.intervals import binomial_rate
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.certificates import certify
from attnsweep.workloads.engine.contract import Evidence, Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()
N, M = 10, 20
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#595959"


@dataclass(frozen=True)
class Trained:
    """A pack that has ended, and its labels (L, P)."""

    pack: Pack  # type: ignore[type-arg]
    evidence: Evidence
    outcome: NDArray[np.str_]
    last: NDArray[np.int64]

    @property
    def final(self) -> NDArray[np.str_]:
        """(L,) what the trainings ended as."""
        return self.outcome[np.arange(self.last.size), self.last]


def main() -> None:
    """Writes the figures and prints what the text cites."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines: list[str] = []
    for name, draw in (("plateaus", _plateaus), ("valley", _valley), ("softmax", _softmax)):
        figure, found = draw()
        figure.savefig(options.out / f"positions_{name}.png")
        lines += [f"## {name}", *found, ""]
    sys.stdout.write("\n".join(lines) + "\n")


def _train(n_seeds: int, **values: Value) -> Trained:
    parameters = defaults(WORKLOAD, **({"n_categories": N, "n_positions": M} | values))
    pack = Pack(WORKLOAD, [Training(parameters, seed) for seed in range(n_seeds)])
    while not pack.advance(10_000):
        pass
    result = pack.result()
    verdicts = WORKLOAD.judge(parameters, result.evidence)
    return Trained(pack, result.evidence, verdicts.outcome, result.last_probe)


def _plateaus() -> tuple[Figure, Iterator[str]]:
    """Levels of trainings that start near the zero, and pass the mean on their way down."""
    figure = Figure(figsize=(9.6, 3.4), layout="constrained", dpi=160)
    axes = figure.subplots(1, 2, sharey=True)
    found = []
    sigma = 1e-3
    for panel, (n, m, learning_rate) in zip(axes, ((10, 20, 0.01), (3, 40, 0.005)), strict=True):
        sizes: dict[str, Value] = {"n_categories": n, "n_positions": m, "learning_rate": learning_rate}
        trained = _train(64, **sizes, init_sigma=sigma, n_steps=2000, stop_when_solved=False)
        steps, level = trained.evidence.steps, trained.evidence.metrics["eval_loss"]
        panel.plot(steps, level.T, color=BLUE, linewidth=0.5, alpha=0.5)
        mean = 1 - 1 / n
        for name, value in (("zero", 1.0), ("mean", mean), ("centred shift", 1 / n + 1 / m - 1 / (n * m))):
            panel.axhline(value, color=GREY, linewidth=0.8, linestyle="--")
            panel.annotate(name, (1.0, value), xycoords=("axes fraction", "data"), fontsize=7, va="bottom", ha="right")
        panel.set_xscale("symlog", linthresh=10)
        panel.set_xlim(left=0)
        panel.set_xlabel("gradient steps")
        panel.set_title(rf"N = {n}, M = {m}, $\sigma$ = {sigma:g}, learning rate {learning_rate:g}", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
        left_zero = steps[np.argmax(level < 0.5 * (1 + mean), axis=1)]
        rate = 2 / n * np.sqrt((m - 1) * ((n - 1 + m) / 2 + np.sqrt(((m - n + 1) / 2) ** 2 + n - 1)))
        near = np.abs(level - mean) < 0.01 * mean
        found.append(
            f"N = {n}, M = {m}: left the zero at step {np.median(left_zero):.0f} (median), "
            f"ln(1/sigma) / (lr lambda_+) = {np.log(1 / sigma) / (learning_rate * rate):.0f}; "
            f"within 1% of the mean level at some probe {_rate(near.any(axis=1))}; ended: {_counts(trained.final)}"
        )
    axes[0].set_ylabel("level (loss per predicted position)")
    return figure, iter(found)


def _valley() -> tuple[Figure, Iterator[str]]:
    """Trainings that descend the valley at infinity, and what the reset does to them."""
    found = []
    for sigma in (1e-3, 1e-2, 1e-1):
        for learning_rate in (0.003, 0.01, 0.03):
            trained = _train(256, init_sigma=sigma, learning_rate=learning_rate, n_steps=round(60 / learning_rate))
            runaway = trained.final == "runaway"
            found.append(f"init_sigma {sigma:g}, lr {learning_rate:g}: runaway {_rate(runaway)}")
    trained = _train(256, init_sigma=1e-2, learning_rate=0.01, n_steps=20_000)
    runaway = np.flatnonzero(trained.final == "runaway")
    module = WORKLOAD.build(trained.pack.final_state(runaway)[0].shared).double()
    lanes, state = trained.pack.final_state(runaway)
    certificates = certify(module, WORKLOAD.loss, lanes, state, trained.final[runaway])
    solved = np.array([each is not None and each.agrees for each in certificates])
    level = trained.evidence.metrics["eval_loss"][runaway]
    norm = trained.evidence.metrics["param_norm"][runaway]
    found.append(f"init_sigma 0.01, lr 0.01, 20,000 steps: runaway {_rate(trained.final == 'runaway')}")
    found.append(f"of these the reset solves {_rate(solved)}")
    found.append(
        f"their level at the end / (1 - 1/N)/M: median {np.median(level[:, -1]) / ((1 - 1 / N) / M):.3f}; "
        f"|theta| at the end / at its least: median {np.median(norm[:, -1] / norm.min(axis=1)):.1f}"
    )
    figure = Figure(figsize=(9.6, 3.4), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2)
    steps = trained.evidence.steps
    others = np.flatnonzero(trained.final == "solved")
    left.loglog(steps, trained.evidence.metrics["eval_loss"][others].T, color=GREEN, linewidth=0.4, alpha=0.15)
    left.loglog(steps, level.T, color=ORANGE, linewidth=0.6, alpha=0.6)
    left.axhline((1 - 1 / N) / M, color=GREY, linewidth=0.8, linestyle="--")
    left.annotate("(1 - 1/N)/M, never reached", (1, (1 - 1 / N) / M), fontsize=7, va="bottom")
    left.set_ylabel("level")
    right.loglog(steps, trained.evidence.metrics["param_norm"][others].T, color=GREEN, linewidth=0.4, alpha=0.15)
    right.loglog(steps, norm.T, color=ORANGE, linewidth=0.6, alpha=0.6)
    right.set_ylabel(r"$|\theta|$")
    for panel in (left, right):
        panel.set_xlabel("gradient steps")
        panel.spines[["top", "right"]].set_visible(False)
    left.plot([], [], color=ORANGE, label="runaway")
    left.plot([], [], color=GREEN, label="solved")
    left.legend(frameon=False, fontsize=8, loc="lower left")
    return figure, iter(found)


def _softmax() -> tuple[Figure, Iterator[str]]:
    """Softmax over positions: no solution at finite logits, and a tail like 1/t: the level is of second order in what
    is not yet attended to, and so is the rate at which the logit that attends grows."""
    n_steps = 30_000
    trained = _train(
        64,
        attention_activation="softmax",
        init_sigma=0.1,
        learning_rate=0.03,
        n_steps=n_steps,
        stop_when_solved=False,
    )
    steps, level = trained.evidence.steps, trained.evidence.metrics["eval_loss"]
    figure = Figure(figsize=(5.2, 3.4), layout="constrained", dpi=160)
    panel = figure.subplots()
    panel.loglog(steps, level.T, color=BLUE, linewidth=0.5, alpha=0.5)
    guide = steps[steps > 1000]
    panel.loglog(guide, 0.5 * np.median(level[:, -1]) * n_steps / guide, color="black", linewidth=1)
    panel.annotate(
        r"$\propto t^{-1}$",
        (guide[0], 0.5 * np.median(level[:, -1]) * n_steps / guide[0]),
        fontsize=8,
        ha="right",
    )
    panel.axhline(0.01, color=GREY, linewidth=0.8, linestyle="--")
    panel.annotate("solved", (1, 0.01), fontsize=7, va="bottom")
    panel.set_xlabel("gradient steps")
    panel.set_ylabel("level")
    panel.spines[["top", "right"]].set_visible(False)
    tail = steps >= n_steps // 4
    slope = np.array([np.polyfit(np.log(steps[tail]), np.log(each[tail]), 1)[0] for each in level])
    low, middle, high = np.quantile(slope, [0.25, 0.5, 0.75])
    return figure, iter(
        [
            f"ended: {_counts(trained.final)}",
            f"slope of log level against log step over the last {1 - 1 / 4:.0%} of the steps: "
            f"{middle:.2f} (quartiles {low:.2f}, {high:.2f})",
            f"level at the end: quartiles {np.quantile(level[:, -1], [0.25, 0.5, 0.75]).round(5).tolist()}",
        ]
    )


def _rate(holds: NDArray[np.bool_]) -> str:
    rate = binomial_rate(int(holds.sum()), holds.size)
    return f"{rate.k} of {rate.n}, {rate.share:.2f} [{rate.low:.2f}, {rate.high:.2f}]"


def _counts(outcome: NDArray[np.str_]) -> str:
    names, counts = np.unique(outcome, return_counts=True)
    return ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))


if __name__ == "__main__":
    main()
