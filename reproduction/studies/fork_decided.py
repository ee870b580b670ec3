"""Study of docs/forks.md: is a training's outcome decided by its initialization or by later data, and when?

All trainings of one configuration are continued from several steps, with other data after the step. Where a problem
draws no data after its start, noise is added to the weights instead (a kick). `share_decided` estimates how much of the
outcome the state at the step decides.

A training's committor q is the chance that it is solved, given its state at the step; the mean of q is the solved rate
p. The share decided is Var(q) / (p (1 - p)): each of R trainings is continued n times from the step, k of these are
solved, and u = k (n - k) / (n (n - 1)) estimates q (1 - q) without bias (Fleiss & Cuzick 1979), so the estimate is
1 - mean(u) / (p (1 - p)). The interval is Rubin's bootstrap, which weights the trainings at random (Rubin 1981). If few
trainings all look decided, or all open, it would have no width, so each bound has one training added: as open as
possible for the lower, decided for the upper. Axes: D draw of weights, R training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.analysis.figures import group_style, house_style, scale_shares
from attnsweep.orchestrator.analysis.labels import VERMILION
from attnsweep.orchestrator.inspection.fork import Change, fork
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import estimate_row
from attnsweep.reproduction.trained import one_thread, swept
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.vocabulary import OUTCOMES

_N_DRAWS = 4_000
_TAILS = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Decided:
    """The share decided, with a 95% interval; `None` if all continuations are solved, or none."""

    share: float | None
    low: float
    high: float

    @property
    def label(self) -> str:
        return "-" if self.share is None else f"{self.share:.2f} [{self.low:.2f}, {self.high:.2f}]"


def share_decided(k: Sequence[int], n: Sequence[int]) -> Decided:
    """Estimates the share decided; each training has `k` solved among `n` continuations, at least 2."""
    k_R, n_R = np.asarray(k, np.float64), np.asarray(n, np.float64)
    assert len(k_R) > 1
    assert n_R.min() > 1
    q_R, open_R = k_R / n_R, k_R * (n_R - k_R) / (n_R * (n_R - 1))
    if q_R.mean() in (0, 1):
        return Decided(None, 0.0, 1.0)
    most = 0.25 * n_R.mean() / (n_R.mean() - 1)
    added = (0.5, most), (float(q_R.mean() < 0.5), 0.0)
    low, high = (
        np.quantile(_drawn(np.append(q_R, q), np.append(open_R, is_open)), tail)
        for (q, is_open), tail in zip(added, _TAILS, strict=True)
    )
    share = 1 - open_R.mean() / (q_R.mean() * (1 - q_R.mean()))
    return Decided(*(float(np.clip(value, 0, 1)) for value in (share, low, high)))


def _drawn(q_R: NDArray[np.float64], open_R: NDArray[np.float64]) -> NDArray[np.float64]:
    weights_DR = np.random.default_rng(0).standard_exponential((_N_DRAWS, len(q_R)))
    weights_DR /= weights_DR.sum(axis=1, keepdims=True)
    p_D = weights_DR @ q_R
    return np.asarray(1 - weights_DR @ open_R / (p_D * (1 - p_D)))


@dataclass(frozen=True, slots=True)
class Committor:
    """Of `n` continuations of a training from a step, `k` are solved; `recorded` is how the training itself ended."""

    replicate: int
    recorded: str
    step: int
    k: int
    n: int


@dataclass(frozen=True, slots=True)
class Committors:
    """Those of all trainings of a trial, and the share decided by step."""

    decided: Mapping[int, Decided]
    committors: tuple[Committor, ...]
    differences: tuple[str, ...]

    def at(self, step: int) -> tuple[Committor, ...]:
        return tuple(committor for committor in self.committors if committor.step == step)


def committors(directory: SweepDirectory, case: "Case", console: Console) -> Committors:
    """Continues all trainings of a sweep's only trial from the steps of the case."""
    found, differences, n = [], [], case.n
    for row in Ledger(directory.place).trainings().sort_by("replicate").to_pylist():
        name, ended = f"0/{row['replicate']}", row["outcome"]
        console.print(f"{name}: {n} continuations from each of {len(case.steps)} steps ...")
        steps = [step for step in case.steps if step < row["n_steps"]]
        several = [fork(directory, name, step=step, redraw=case.redraw, n=n, size=case.size) for step in steps]
        differences += [f"{name} {forked.difference}" for forked in several if forked.difference]
        k_of = dict.fromkeys(case.steps, n * (ended == "solved")) | {
            forked.step: forked.rate("solved").k for forked in several
        }
        found += [Committor(row["replicate"], ended, step, k, n) for step, k in k_of.items()]
    of_step = {step: [each.k for each in found if each.step == step] for step in case.steps}
    decided = {step: share_decided(k, [n] * len(k)) for step, k in of_step.items()}
    return Committors(decided, tuple(found), tuple(differences))


OPEN_BETWEEN = 0.1, 0.9
"""A training's outcome is open at a step where its probability of being solved lies between these two numbers."""


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration whose trainings are continued from several steps, and what is random in the continuations: later
    data, or noise added to the weights."""

    name: str
    sweep: str
    values: Mapping[str, Value]
    replicates: int
    steps: tuple[int, ...]
    n: int = 10
    redraw: Change = "data"
    size: float = 0.01

    @property
    def folder(self) -> str:
        """The sweep's name: cases that differ only in the size of the kick share one sweep."""
        return "fork_" + "_".join(self.name.lower().replace(",", "").split())

    def spec(self, seed: int) -> Sweep:
        one = load_sweep(self.sweep).fix(dict(self.values))
        return one.but(name=self.folder, trials=1, replicates=self.replicates, seed=seed)

    @property
    def n_steps(self) -> int:
        return int(self.values["n_steps"] or 0)

    @property
    def change(self) -> str:
        return f"kick {self.size:g}" if self.redraw == "kick" else self.redraw


_STARTS: Mapping[str, Value] = {"init_sigma": None, "layer_norm_eps": 1e-5}
_INDUCTION: Mapping[str, Value] = {**_STARTS, "d_model": 16, "qk": "factored", "n_steps": 350}
_FIRST: Mapping[str, Value] = {
    **{**_STARTS, "train_length": 30, "attention_scale": "inv_sqrt_d", "learning_rate": 0.001},
    **{"n_layers": 2, "n_heads": 1, "n_steps": 500},
}
_MERGED: Mapping[str, Value] = {**_INDUCTION, "qk": "merged", "n_steps": 325}
_SYSTEM_P: Mapping[str, Value] = {"init_sigma": 0.3, "learning_rate": 0.01, "n_steps": 1000}
_MODULAR: Mapping[str, Value] = {"weight_decay": 1.0, "n_steps": 1000}
CASES = (
    Case("induction", "induction", _INDUCTION, replicates=24, steps=(0, 60, 120, 180, 240)),
    Case("induction, merged", "induction", _MERGED, replicates=16, steps=(0, 150)),
    Case("FIRST", "first_lengths", _FIRST, replicates=24, steps=(0, 100, 200, 300, 400)),
    Case("FIRST, one layer", "first_lengths", {**_FIRST, "n_layers": 1}, replicates=16, steps=(0, 250)),
    *(
        Case("system P", "quickstart", _SYSTEM_P, replicates=24, steps=(0, 20, 100), redraw="kick", size=size)
        for size in (0.01, 0.1, 1.0)
    ),
    Case("modular addition", "modular_addition", _MODULAR, replicates=12, steps=(0, 400), n=6, redraw="kick"),
)
Found = Sequence[tuple[Case, Committors]]
_DRAWN = ("induction", "FIRST")
"""The cases of which the figure shows every training's probability of being solved."""


def reproduce(directory: Path, console: Console, seed: int = 0, cases: Sequence[Case] = CASES) -> Comparison:
    """Continues all trainings of several configurations from several steps, and reports how much of the final outcome
    the state at each step decides."""
    found: list[tuple[Case, Committors]] = []
    for case in cases:
        sweep = swept(case.folder, directory, console, changed=case.spec(seed), local=True)
        with one_thread():
            answer = committors(sweep, case, console)
        found.append((case, answer))
    differences = [f"{case.name} {line}" for case, answer in found for line in answer.differences]
    return Comparison(
        title="fork-decided: when is the outcome of a training decided, and by what?",
        source="attnsweep, docs/forks.md",
        rows=[row for case, answer in found for row in _rows(case, answer)],
        tables=[("Committors of all trainings, from several steps", _table(found))],
        figures=save_figure(_figure(found), directory, "fork-decided"),
        notes=[
            f"The outcome is solved within the steps given. Sweep seed {seed}.",
            "Share decided: Var(q) / (p (1 - p)) of the trainings' committors q, whose mean is p.",
            "Open: 0.1 < q < 0.9 by the estimate k / n.",
            *differences,
        ],
    )


def _rows(case: Case, answer: Committors) -> Iterator[ComparedValue]:
    for step, decided in answer.decided.items():
        if decided.share is not None:
            name = f"{case.name}, {case.change}, step {step}: share decided"
            yield estimate_row(name, decided.share, decided.low, decided.high)


def _table(found: Found) -> list[list[str]]:
    lines = [["problem", "redrawn", "step", "share decided", "trainings x n", "solved", "open", "least q", "largest q"]]
    for case, answer in found:
        for step, decided in answer.decided.items():
            q = [_share(committor) for committor in answer.at(step)]
            n_open = sum(OPEN_BETWEEN[0] < each < OPEN_BETWEEN[1] for each in q)
            ends = f"{np.mean(q):.2f}", f"{n_open} of {len(q)}", f"{min(q):.2f}", f"{max(q):.2f}"
            lines.append([case.name, case.change, str(step), decided.label, f"{len(q)} x {case.n}", *ends])
    return lines


def _share(committor: Committor) -> float:
    return committor.k / committor.n


@house_style()
def _figure(found: Found) -> Figure:
    drawn = [(case, answer) for case, answer in found if case.name in _DRAWN]
    figure = Figure(figsize=(3.2 * (len(drawn) + 1), 2.9), layout="constrained", dpi=110)
    *panels, last = figure.subplots(1, len(drawn) + 1, squeeze=False)[0]
    for panel, (case, answer) in zip(panels, drawn, strict=True):
        _draw_committors(panel, case, answer)
        panel.set_ylabel("P(solved | its state at the step)" if panel is panels[0] else "")
    with_data = [(case, answer) for case, answer in found if case.redraw == "data"]
    for number, (case, answer) in enumerate(with_data):
        _draw_decided(last, case, answer, number)
    last.set_title("share of the outcome decided")
    last.set_xlabel("share of the steps taken")
    last.legend()
    return figure


def _draw_committors(panel: Axes, case: Case, answer: Committors) -> None:
    of_training: dict[int, list[Committor]] = {}
    for committor in answer.committors:
        of_training.setdefault(committor.replicate, []).append(committor)
    for several in of_training.values():
        is_solved = several[0].recorded == "solved"
        steps, q = [*(each.step for each in several), case.n_steps], [*map(_share, several), float(is_solved)]
        panel.plot(steps, q, color=OUTCOMES["solved"].colour if is_solved else VERMILION, alpha=0.6, linewidth=1.0)
    for label, colour in (("solved itself", OUTCOMES["solved"].colour), ("not solved", VERMILION)):
        panel.plot([], [], color=colour, label=label)
    scale_shares(panel)
    panel.set_title(f"{case.name}, {len(of_training)} trainings")
    panel.set_xlabel("optimizer step")
    panel.legend()


def _draw_decided(panel: Axes, case: Case, answer: Committors, number: int) -> None:
    colour, dashes, marker = group_style(number)
    shares = [(step / case.n_steps, each) for step, each in answer.decided.items() if each.share is not None]
    middle = np.array([each.share for _, each in shares])
    bounds = np.array([[each.low, each.high] for _, each in shares]).reshape(-1, 2).T
    # Each series of points is shifted sideways, so that intervals of several series at the same step do not overlap.
    x = np.array([step for step, _ in shares]) + 0.012 * number
    panel.errorbar(
        x,
        middle,
        np.abs(bounds - middle),
        label=case.name,
        color=colour,
        linestyle=dashes,
        marker=marker,
        markersize=4,
        elinewidth=0.8,
    )
    scale_shares(panel)
