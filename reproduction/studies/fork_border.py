"""Study of docs/forks.md: committors, the probabilities of an outcome given the state of a training, for trainings
close to a point where the gradient vanishes. They are predicted by formulas and measured by continuing trainings with
random noise.

System P (`positions_only`) stays near the zero of the gradient, q = 0 and v = 0, until its unstable modes (directions
of growth) have grown. A training whose number of steps is near its escape time is therefore on the border of two
outcomes. Its continuations are kicked: normal noise is added once, at step 0 or later, and moves the amplitudes of the
modes. From the training's state alone the law predicts the committor, the share of kicked trainings that are still at
the zero after their last step. This takes no training.

Two laws are held against continuations:

- **The linear law** (docs/theory.md, time to leave the zero; merged form): the four numbers of `coordinates` grow by
  1 + lr lambda a step. Kicks move each by a normal number, so P(`degenerate_zero` | state) is an integral over four
  normal numbers.
- **`predicted_escape_step`** of each kicked training (docs/forecast.md; merged and factored form): the share of those
  that should leave after the last step.

Axes: L training or kick, F the four numbers of `coordinates`, M, N, K = M - 1 as in `positions_only`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from attnsweep.orchestrator.analysis.figures import group_style
from attnsweep.orchestrator.analysis.rates.intervals import binomial_rate, pooled_rate
from attnsweep.orchestrator.inspection.continuation import Source
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, framed, save_figure
from attnsweep.reproduction.rows import estimate_row, mean_interval, mean_row, rate_row, value_row
from attnsweep.reproduction.studies.metric_laws import Floats, coordinates, modes_of_zero
from attnsweep.reproduction.trained import one_thread, queried, swept
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.diagnostics.outcomes import AT_LEVEL, STATIONARY_GAMMA
from attnsweep.workloads.engine.checkpoint import Checkpoint
from attnsweep.workloads.parameters import Value

N, M = 10, 20
_N_DRAWS = 4_096
"""The number of kicks drawn to predict one committor (probability of an outcome), which is then known to 0.008."""
DELAYS = np.arange(-4, 10.5, 0.5)
"""By how many steps trainings may leave the zero of the gradient later than the law says."""
_NO_DELAY = 8
"""The index of the delay 0 in `DELAYS`."""
_BINS = (0.0, 0.02, 0.2, 0.4, 0.6, 0.8, 0.98, 1.0)
"""Edges of the bins of predicted committors (probabilities of an outcome)."""
_DIFFERENCE = "measured minus predicted"
_NEAR = """
select replicate, predicted_escape_step from trainings where abs(predicted_escape_step - ?) <= ? order by 2, 1
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Border:
    """A configuration of an attention model that attends by positions only (system P). It starts near a point where the
    gradient is zero, and its trainings end at about the step at which they leave this point.

    Attributes:
        name: The name of the rows, of the sweep and of its folder.
        values: Parameters of the trainings; `qk` is how k^t q is trained.
        law: What predicts the outcome: `linear`, by the probability of `degenerate_zero`; or `column`, by whether
            `predicted_escape_step` is after the last step, so that the loss is still within 1% of that of the start.
        n_replicates: The number of seeds that are trained.
        around, within: Trainings are continued if their own `predicted_escape_step` differs from `around` by at most
            `within`.
        n_rows: The number of continued trainings, evenly spaced in the order of their predicted steps.
        steps: The steps from which the chosen trainings are continued.
        sizes: Sizes of kicks (normal noise added to the weights), relative to the root mean square of each tensor.
        n: The number of continuations of each training, for each step and size of kick.
    """

    name: str
    values: Mapping[str, Value]
    law: Literal["linear", "column"]
    n_replicates: int
    around: int
    within: int
    n_rows: int
    steps: tuple[int, ...]
    sizes: tuple[float, ...]
    n: int

    def spec(self, seed: int) -> Sweep:
        """The sweep whose trainings are later continued with random noise: one configuration, many seeds."""
        one = load_sweep("quickstart").fix(dict(self.values))
        name = f"fork_border_{self.name}"
        return one.but(name=name, sampler="grid", trials=1, replicates=self.n_replicates, seed=seed)

    @property
    def n_steps(self) -> int:
        """The number of gradient descent steps in each training of this configuration."""
        return int(self.values["n_steps"] or 0)


_MERGED: Mapping[str, Value] = {"qk": "merged", "init_sigma": 1e-3, "learning_rate": 0.01, "n_steps": 150}
LABEL = Border(
    name="label",
    values=_MERGED,
    law="linear",
    n_replicates=256,
    around=159,
    within=10,
    n_rows=24,
    steps=(0, 60, 120),
    sizes=(0.03, 0.1, 0.3, 1.0),
    n=64,
)
_SMALLER = replace(LABEL, n_rows=16, n=48)
MERGED = replace(_SMALLER, name="merged", law="column", values={**_MERGED, "n_steps": 159})
_LARGE: Mapping[str, Value] = {**_MERGED, "init_sigma": 0.03, "n_steps": 35}
LARGE = replace(_SMALLER, name="large", values=_LARGE, around=72, steps=(0, 20), sizes=(0.1, 0.3, 1.0))
_FACTORED: Mapping[str, Value] = {"qk": "factored", "init_sigma": 0.02, "learning_rate": 0.03, "n_steps": 220}
_AT_220 = replace(MERGED, name="factored", values=_FACTORED, n_replicates=128, around=220, within=20)
FACTORED = replace(_AT_220, steps=(0, 110), sizes=(0.01, 0.03, 0.1))
BORDERS = (LABEL, LARGE, MERGED, FACTORED)


@dataclass(frozen=True, slots=True)
class Cell:
    """Continuations of one training from one step, with the predicted and the measured outcome. Each begins with a
    kick: noise of one size, added to the weights.

    Attributes:
        replicate: The training.
        escape: Its own predicted escape step, without a kick, minus the border's `around`.
        step, size: The step from which continuations begin, and the size of their kicks.
        n: The number of continuations.
        k: The number of continuations that are still at the zero at their last step.
        predicted: The probability by the law that a continuation is still at the zero, for each delay in `DELAYS`: the
            steps by which trainings leave later than the law says.
        n_wrong: The number of continuations that do not end as `predicted_escape_step` says; `None` for the linear law.
    """

    replicate: int
    escape: int
    step: int
    size: float
    n: int
    k: int
    predicted: Floats
    n_wrong: int | None

    @property
    def committor(self) -> float:
        """The predicted probability that a training that is continued with random noise is still near the point of zero
        gradient at its last step. It assumes that trainings leave this point exactly at the predicted step, without a
        delay.
        """
        return float(self.predicted[_NO_DELAY])

    @property
    def excess(self) -> Floats:
        """The measured minus the predicted share of a training's continuations that are still near the point of zero
        gradient at their last step. There is one prediction for each number of steps by which they may leave it later
        than predicted (`DELAYS`), (n_delays,).
        """
        return self.k / self.n - self.predicted


@dataclass(frozen=True, slots=True)
class LinearLaw:
    """Predicts how gradient descent moves near the point where all weights and the gradient are 0, for attention by
    positions alone: four coordinates of the weights each grow or shrink by a constant factor per step.

    Attributes:
        rates: (4,) the rate lambda of each mode (direction of growth); those of unstable modes are positive.
        modes: (4, 4) the modes as rows, as `coordinates` measures them.
        learning_rate: The learning rate of gradient descent.
    """

    rates: Floats
    modes: Floats
    learning_rate: float

    @classmethod
    def of(cls, learning_rate: float) -> "LinearLaw":
        """Derives the law for 10 categories and 20 positions. It describes gradient descent near the point where all
        weights, and the gradient too, are 0.
        """
        return cls(*modes_of_zero(N, M), learning_rate)

    def is_at_zero(self, start_LF: Floats, rest_L: Floats, n_steps: float) -> NDArray[np.bool_]:
        """Returns whether each training, after `n_steps` steps, is still so close to a point where the gradient is 0
        that its outcome would be `degenerate_zero`, (n_trainings,).

        Args:
            start_LF: The four coordinates (`coordinates`) of each training at the beginning.
            rest_L: The squared norm of the rest of each training's weights, which does not move.
            n_steps: The number of steps.
        """
        amplitude_LF = start_LF @ self.modes.T * (1 + self.learning_rate * self.rates) ** n_steps
        level_L = 1 - (self.rates * amplitude_LF**2).sum(1) / (2 * (M - 1))
        gradient_L = np.linalg.norm(self.rates * amplitude_LF, axis=1) / (M - 1)
        norm_L = np.sqrt(rest_L + (amplitude_LF**2).sum(1))
        is_still = gradient_L * norm_L < STATIONARY_GAMMA * np.abs(level_L)
        return np.asarray((np.abs(level_L - 1) <= AT_LEVEL) & is_still)

    def committors(self, q_MK: Tensor, v_NN: Tensor, size: float, n_steps: Sequence[float]) -> Floats:
        """Returns the probability that a training has the outcome `degenerate_zero` if random noise is added to its
        weights and it then takes so many steps: one probability for each number in `n_steps`, which may be fractional.
        """
        rms_F = np.array([float(value.square().mean().sqrt()) for value in (q_MK, q_MK, v_NN, v_NN)])
        (own_F,) = coordinates(q_MK[None], v_NN[None])
        noise_LF = np.random.default_rng(0).standard_normal((_N_DRAWS, 4))
        rest = float(q_MK.square().sum() + v_NN.square().sum()) - float((own_F**2).sum())
        # Only four coordinates of the weights are followed. The others matter only through the sum of their squares,
        # `rest`. The random noise that is added to the weights changes this sum at random, but only the mean increase
        # is added here.
        rest += size**2 * (rms_F[0] ** 2 * (q_MK.numel() - 2) + rms_F[2] ** 2 * (v_NN.numel() - 2))
        kicked_LF, rest_L = own_F + size * rms_F * noise_LF, np.full(_N_DRAWS, rest)
        return np.array([self.is_at_zero(kicked_LF, rest_L, n).mean() for n in n_steps])


def reproduce(directory: Path, console: Console, seed: int = 0, borders: Sequence[Border] = BORDERS) -> Comparison:
    """Tests formulas that predict how often a training is still close to a point where the gradient vanishes after its
    last step. To measure how often, trainings that are about to leave this point are continued with random noise added
    to their weights.
    """
    cells: dict[str, list[Cell]] = {}
    for border in borders:
        spec = border.spec(seed)
        sweep = swept(spec.name, directory, console, changed=spec, local=True)
        with one_thread():
            cells[border.name] = list(_cells(border, sweep, console))
    return Comparison(
        title="fork-border: the committor at the border of the zero, and the escape law",
        source="attnsweep, docs/forks.md",
        rows=[row for name, of_border in cells.items() for row in _rows(name, of_border)],
        tables=[table for name, of_border in cells.items() for table in _tables(name, of_border)],
        figures=save_figure(_figure(cells), directory, "fork-border"),
        notes=[
            f"System P, N = {N}, M = {M}, exact loss, gradient descent; sweep seed {seed}.",
            "label, large: merged form, init_sigma 0.001 and 0.03, P(degenerate_zero) by the linear law.",
            "merged, factored: P(the loss at the last step is within 1% of that of the start), by "
            "predicted_escape_step of the kicked weights.",
            "Differences: measured minus predicted, averaged over the cells of a training; intervals over trainings.",
        ],
    )


def _cells(border: Border, sweep: SweepDirectory, console: Console) -> Iterator[Cell]:
    rows = queried(sweep, _NEAR, border.around, border.within)
    places = np.unique(np.linspace(0, len(rows) - 1, border.n_rows).round().astype(int))
    console.print(f"{border.name}: {len(places)} trainings of {len(rows)} near the border")
    for replicate, escape in (rows[place] for place in places):
        states = Source(sweep, f"0/{replicate}", "kick", border.sizes[0]).states(border.steps)
        for size in border.sizes:
            source = Source(sweep, f"0/{replicate}", "kick", size)
            for step in border.steps:
                yield _cell(border, source, states, step, escape - border.around)


def _cell(border: Border, source: Source, states: Mapping[int, Checkpoint], step: int, escape: int) -> Cell:
    rows = source.continued(states, step, range(1, border.n + 1)).rows
    place = {"replicate": source.row["replicate"], "escape": escape, "step": step, "size": source.size, "n": border.n}
    if border.law == "linear":
        weights = source.weights(states, step)
        n_left = (border.n_steps - step - DELAYS).tolist()
        law = LinearLaw.of(float(border.values["learning_rate"] or 0))
        predicted = law.committors(weights["q_MK"], weights["v_NN"], source.size, n_left)
        outcomes = rows.trainings["outcome"].to_pylist()
        return Cell(**place, k=outcomes.count("degenerate_zero"), predicted=predicted, n_wrong=None)
    of_start = pc.field("metric").isin(["eval_loss"]) & (pc.field("step") == 0)
    start = min(1.0, rows.curves.filter(of_start)["value"][0].as_py())
    is_held = rows.trainings["eval_loss"].to_numpy() >= (1 - AT_LEVEL) * start
    escapes = rows.trainings["predicted_escape_step"].to_numpy()
    n_wrong = int((is_held != (escapes > border.n_steps)).sum())
    predicted = (escapes[:, None] + DELAYS > border.n_steps).mean(axis=0)
    return Cell(**place, k=int(is_held.sum()), predicted=predicted, n_wrong=n_wrong)


def _rows(name: str, cells: Sequence[Cell]) -> Iterator[ComparedValue]:
    excess = _over_trainings(cells)
    yield mean_row(f"{name}: measured minus predicted committor", excess[:, _NO_DELAY].tolist(), published="0")
    if cells[0].n_wrong is None:
        yield estimate_row(f"{name}: steps by which they leave later than predicted", *delay_of(excess), published="0")
        delayed = int(np.abs(DELAYS - delay_of(excess)[0]).argmin())
        square = np.mean([cell.excess[delayed] ** 2 for cell in cells])
        by_chance = np.mean([cell.predicted[delayed] * (1 - cell.predicted[delayed]) / cell.n for cell in cells])
        chance = f"{np.sqrt(by_chance):.3f} by chance alone"
        yield value_row("  root mean square difference of a cell, with this delay", float(np.sqrt(square)), chance)
        return
    wrong = [(cell.n, cell.n_wrong or 0) for cell in cells]
    of_training = np.array([cell.replicate for cell in cells])
    counts = [np.array(wrong)[of_training == replicate].sum(0) for replicate in np.unique(of_training)]
    yield rate_row(f"{name}: continuations that predicted_escape_step misjudges", pooled_rate(np.array(counts)))


def _over_trainings(cells: Iterable[Cell]) -> Floats:
    """Returns by how much the measured probability of staying near weights 0, where the gradient vanishes, exceeds the
    predicted one. This difference is averaged over the steps and noise sizes of each training.

    The result has a row for each training and a column for each delay in `DELAYS`.
    """
    of_training: dict[int, list[Floats]] = {}
    for cell in cells:
        of_training.setdefault(cell.replicate, []).append(cell.excess)
    return np.array([np.mean(excess, axis=0) for excess in of_training.values()])


def delay_of(excess: Floats) -> tuple[float, float, float]:
    """Returns by how many steps later than predicted trainings move away from the weights where the gradient is 0, with
    a 95% interval.

    It is the delay at which the mean of measured minus predicted probabilities is 0; the ends of the interval are the
    delays at which an end of that mean's interval is 0.

    Args:
        excess: (training, delay) measured minus predicted probabilities of staying at the zero.
    """
    mean, low, high = np.array([mean_interval(of_delay.tolist()) for of_delay in excess.T]).T
    # `np.interp` finds the delay at which the measured minus the predicted probability is 0. It needs ascending values,
    # but this difference falls as the delay grows, so its negative is given.
    delay, least, most = (float(np.interp(0.0, -each, DELAYS)) for each in (mean, low, high))
    return delay, least, most


def _tables(name: str, cells: Sequence[Cell]) -> Iterator[tuple[str, list[list[str]]]]:
    by_kick = [["border", "kick", "from step", _DIFFERENCE, "predicted", "measured", "open"]]
    for size, step in sorted({(cell.size, cell.step) for cell in cells}):
        chosen = [cell for cell in cells if (cell.size, cell.step) == (size, step)]
        n_open = sum(_BINS[1] < cell.committor < _BINS[-2] for cell in chosen)
        by_kick.append([name, f"{size:g}", str(step), *_compared(chosen), f"{n_open} of {len(chosen)}"])
    yield f"{name}: committors by the size of the kick and the step", by_kick
    by_bin = [["border", "predicted committor", _DIFFERENCE, "predicted", "measured", "cells"]]
    for low, high in pairwise(_BINS):
        chosen = [cell for cell in cells if low <= cell.committor < high or cell.committor == high == 1]
        if len({cell.replicate for cell in chosen}) > 1:
            by_bin.append([name, f"{low:g} to {high:g}", *_compared(chosen), str(len(chosen))])
    yield f"{name}: calibration", by_bin


def _compared(cells: Sequence[Cell]) -> tuple[str, str, str]:
    """Formats the mean of the measured and of the predicted committors (probabilities of an outcome), and the mean
    difference with its interval over trainings.
    """
    mean, low, high = mean_interval(_over_trainings(cells)[:, _NO_DELAY].tolist())
    predicted, measured = np.mean([(cell.committor, cell.k / cell.n) for cell in cells], axis=0)
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]", f"{predicted:.3f}", f"{measured:.3f}"


def _figure(cells: Mapping[str, Sequence[Cell]]) -> Figure:
    """Draws measured against predicted committors (probabilities of an outcome): a plot for each configuration, a
    colour for each size of the added noise.
    """
    figure = Figure(figsize=(3.2 * len(cells), 3.2), layout="constrained", dpi=150)
    for panel, (name, of_border) in zip(figure.subplots(1, len(cells), squeeze=False)[0], cells.items(), strict=True):
        panel.plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
        for number, size in enumerate(sorted({cell.size for cell in of_border})):
            _draw(panel, [cell for cell in of_border if cell.size == size], number)
        framed(panel, xlabel="predicted committor", ylabel="measured" if name == next(iter(cells)) else "", title=name)
        panel.legend(frameon=False, fontsize=8, title="size of kicks", title_fontsize=8)
    return figure


def _draw(panel: Axes, cells: Sequence[Cell], number: int) -> None:
    colour, _, marker = group_style(number)
    rates = [binomial_rate(cell.k, cell.n).interval for cell in cells]
    share, low, high = np.array(rates).T
    predicted = [cell.committor for cell in cells]
    panel.errorbar(
        predicted,
        share,
        [np.maximum(share - low, 0), np.maximum(high - share, 0)],
        fmt=marker,
        markersize=2.5,
        linewidth=0.4,
        color=colour,
        alpha=0.7,
        label=f"{cells[0].size:g}",
    )
