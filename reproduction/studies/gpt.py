"""Study of docs/gpt.md: at which steps GPTs pass the stages of learning (sweep `gpt_stages`); and why LayerNorm's
epsilon decides whether induction heads emerge (GPTs of the sweep `induction` with changed starting values or step
sizes).

Axes: L lane, N block, H head.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import cast

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn
from torch.func import functional_call

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import Claim, mean_difference_row, ratio_row, share_row
from attnsweep.reproduction.trained import one_thread, queried, trained
from attnsweep.search_spaces.catalog.gpt import induction
from attnsweep.workloads.engine.contract import Batch, HeadScores, Lanes
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.gpt import GPTParameters
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.gpt.workload import GPTWorkload
from attnsweep.workloads.parameters import Value

_CURVES = """
select tied, qk, eps, sigma, constant, current, list(step order by step) as steps, list(value order by step) as losses
from (
    select training_id, param_tied as tied, param_qk as qk, param_layer_norm_eps as eps, param_init_sigma as sigma,
        level_constant as constant, level_current as current
    from trainings
) join (select training_id, step, value from curves where metric = 'eval_loss') using (training_id)
group by all order by all
"""
_COLOURS = {"factored": "#0072B2", "merged": "#D55E00"}
"""The colours by parametrization, from Okabe & Ito 2008."""
_SMALL = 1e-3
"""An init_sigma up to this value counts as small."""


@dataclass(frozen=True, order=True, slots=True)
class Cell:
    """One configuration of the sweep `gpt_stages`: the values of its four swept parameters."""

    tied: bool
    qk: str
    layer_norm_eps: float
    init_sigma: float


@dataclass(frozen=True, slots=True)
class Stages:
    """When the trainings of one configuration learn two things, one after the other: to predict from the current token,
    then also from the previous one. The step is infinite for what a training never learns.

    Attributes:
        first: The step at which the loss falls below the middle of two entropies: of the target, H(Y), and of the
            target given the current token, H(Y | current token).
        second: The step at which the loss falls below half of H(Y | current token): attention then selects the previous
            token.
    """

    first: Sequence[float]
    second: Sequence[float]


def compare_stages(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Tests a prediction of when GPTs learn to predict from the current token, and then from the previous one too: of
    the steps at which the trainings of a finished sweep have learned each. Draws the measured steps."""
    stages = stages_of(sweep)
    return Comparison(
        title="gpt-stages: when does the attention of a GPT begin to select?",
        source="attnsweep, docs/gpt.md",
        rows=list(_rows(stages)),
        tables=[("Median steps to the end of each stage", _table(stages))],
        figures=save_figure(_figure(stages), directory, "gpt_stages"),
        notes=[
            "First stage: the loss falls below the middle of H(Y) and H(Y | current token). Second: below half of "
            "H(Y | current token). Steps are interpolated between probes.",
            "Rows pool all untied models over the factors that they do not name, and compare means of logarithms; "
            "trainings that do not end a stage in time are left out of rows, and infinite in the table.",
        ],
    )


def stages_of(sweep: SweepDirectory) -> Mapping[Cell, Stages]:
    """Returns at which steps the trainings of each configuration complete each stage of learning."""
    ends_by_cell: dict[Cell, list[tuple[float, float]]] = {}
    for *cell, constant, current, steps, losses in queried(sweep, _CURVES):
        step, loss = np.asarray(steps, np.float64), np.asarray(losses, np.float64)
        ends = falls_below(step, loss, (constant + current) / 2.0), falls_below(step, loss, current / 2.0)
        ends_by_cell.setdefault(Cell(*cell), []).append(ends)
    return {cell: Stages(*map(list, zip(*ends, strict=True))) for cell, ends in sorted(ends_by_cell.items())}


def falls_below(steps: NDArray[np.float64], losses: NDArray[np.float64], level: float) -> float:
    """Returns the step at which a loss curve first falls below a given loss, interpolated between probes; infinite if
    it never does.
    """
    below = np.flatnonzero(losses < level)
    if below.size == 0:
        return float("inf")
    first = int(below[0])
    if first == 0:
        return float(steps[0])
    fraction = (losses[first - 1] - level) / (losses[first - 1] - losses[first])
    return float(steps[first - 1] + fraction * (steps[first] - steps[first - 1]))


def _rows(stages: Mapping[Cell, Stages]) -> Iterator[ComparedValue]:
    sigmas = sorted({cell.init_sigma for cell in stages})
    for low, high in pairwise(sigmas):
        claim: Claim = {"published": "1 within 10%", "agrees_within": (0.9, 1.1)} if high <= _SMALL else {}
        ends = (_pooled(stages, "first", init_sigma=sigma) for sigma in (low, high))
        yield ratio_row(f"first stage, init_sigma {low:g} over {high:g}", *ends, **claim)
    for qk, (low, high) in product(_COLOURS, pairwise(sigmas)):
        of_low, of_high = (_pooled(stages, "second", qk=qk, init_sigma=sigma) for sigma in (low, high))
        if of_low and of_high:
            yield mean_difference_row(f"second stage, {qk}: steps more at {low:g} than at {high:g}", of_low, of_high)
    for sigma in sigmas:
        merged, factored = (_pooled(stages, "second", qk=qk, init_sigma=sigma) for qk in ("merged", "factored"))
        if merged and factored:
            claim = {"published": "about half", "agrees_within": (0.4, 0.6)} if sigma <= _SMALL else {}
            yield ratio_row(f"second stage, merged over factored at init_sigma {sigma:g}", merged, factored, **claim)


def _pooled(stages: Mapping[Cell, Stages], stage: str, **values: object) -> list[float]:
    cells = [cell for cell in stages if not cell.tied and all(getattr(cell, name) == values[name] for name in values)]
    all_steps = [steps for cell in cells for steps in getattr(stages[cell], stage)]
    return [max(steps, 1.0) for steps in all_steps if steps < float("inf")]


def _table(stages: Mapping[Cell, Stages]) -> list[list[str]]:
    sigmas = sorted({cell.init_sigma for cell in stages}, reverse=True)
    rows = [["tied", "qk", "layer_norm_eps", "stage", *(f"sigma {sigma:g}" for sigma in sigmas)]]
    for tied, qk, eps in sorted({(cell.tied, cell.qk, cell.layer_norm_eps) for cell in stages}):
        for name in ("first", "second"):
            steps = (getattr(stages[Cell(tied, qk, eps, sigma)], name) for sigma in sigmas)
            medians = (f"{float(np.median(of_cell)):.3g}" for of_cell in steps)
            rows.append(["yes" if tied else "no", qk, f"{eps:g}", name, *medians])
    return rows


def _figure(stages: Mapping[Cell, Stages]) -> Figure:
    ties = sorted({cell.tied for cell in stages})
    figure = Figure(figsize=(3.6 * len(ties) + 0.4, 3.2), layout="constrained", dpi=150)
    panels = figure.subplots(1, len(ties), sharey=True, squeeze=False)[0]
    for panel, tied in zip(panels, ties, strict=True):
        for qk, eps in sorted({(cell.qk, cell.layer_norm_eps) for cell in stages}):
            cells = [cell for cell in stages if (cell.tied, cell.qk, cell.layer_norm_eps) == (tied, qk, eps)]
            sigma = [cell.init_sigma for cell in cells]
            line = "-" if eps == min(cell.layer_norm_eps for cell in stages) else "--"
            first, second = ([np.median(getattr(stages[cell], name)) for cell in cells] for name in ("first", "second"))
            panel.plot(sigma, second, line, color=_COLOURS[qk], marker="o", markersize=3, label=f"{qk}, {eps:g}")
            panel.plot(sigma, first, line, color=_COLOURS[qk], marker="s", markersize=3, alpha=0.5)
        panel.set(xscale="log", xlabel="init_sigma")
        panel.set_title("tied" if tied else "untied", fontsize=9)
        panel.grid(color="0.93", linewidth=0.6)
    panels[0].set_ylabel("median steps (squares: first stage)", fontsize=8)
    panels[0].legend(frameon=False, fontsize=8, title="qk, layer_norm_eps", title_fontsize=8)
    return figure


FIRST_SEED, N_SEEDS = 1000, 32
N_STEPS = 600
WRITING = ("attention.out", "ffn.second")
"""The two layers of a block that add to the residual stream."""
EMBEDDINGS = ("token.weight", "position.weight")

Factors = Mapping[str, float]
"""Factors by a part of the weight's name; other weights have the factor 1."""


@dataclass(frozen=True)
class Change:
    """A change that turns the GPTs of a sweep into a variant: other parameters, another scale of some weights' starting
    values, or another size of some weights' steps.

    Attributes:
        row: The name of the change in the table.
        values: Parameters of the training.
        start: Factors of the starting values.
        steps: Factors of the steps by which weights move; with factor 0 a weight is left out of the model.
    """

    row: str
    values: Mapping[str, Value]
    start: Factors = field(default_factory=dict)
    steps: Factors = field(default_factory=dict)


_SMALLER: Mapping[str, Value] = {"init_sigma": 0.1}
_PYTORCHS: Mapping[str, Value] = {"init_sigma": None}
_SLOW: Mapping[str, Value] = {"init_sigma": 0.1, "learning_rate": 0.001, "n_steps": 1200}
_ALL = (*EMBEDDINGS, *WRITING)
CHANGES = (
    Change("start 0.1, token embeddings times 10", _SMALLER, start={"token": 10}),
    Change("start 0.1, token and position embeddings times 10", _SMALLER, start=dict.fromkeys(EMBEDDINGS, 10)),
    Change("start 0.1, position embeddings divided by 10", _SMALLER, start={"position.weight": 0.1}),
    Change("PyTorch's start, token embeddings divided by 10", _PYTORCHS, start={"token": 0.1}),
    Change("start 0.1, steps of the embeddings ten times shorter", _SMALLER, steps=dict.fromkeys(EMBEDDINGS, 0.1)),
    Change("PyTorch's start, steps of the embeddings ten times longer", _PYTORCHS, steps=dict.fromkeys(EMBEDDINGS, 10)),
    Change(
        "start 0.1, steps of what writes to the stream ten times shorter", _SMALLER, steps=dict.fromkeys(WRITING, 0.1)
    ),
    Change(
        "start 0.1, without the biases of what writes to the stream",
        _SMALLER,
        steps={f"{layer}.bias": 0 for layer in WRITING},
    ),
    Change("start 0.1, embeddings and what writes to the stream times 10", _SMALLER, start=dict.fromkeys(_ALL, 10)),
    Change("start 0.1, learning rate 0.001, 1,200 steps", _SLOW),
    Change(
        "start 0.1, learning rate 0.001, 1,200 steps, embeddings and what writes to the stream divided by 10",
        _SLOW,
        start=dict.fromkeys(_ALL, 0.1),
    ),
)


class ChangedGPT(GPTWorkload):
    """GPTs in which the starting values of some weights, or the sizes of their optimizer steps, are multiplied by
    factors.

    A weight whose steps should be f times as long is stored divided by f, and the model multiplies the stored value by
    f. The start is then the same function, and as Adam's steps do not depend on the size of gradients, the weight moves
    by f times as much.
    """

    def __init__(self, change: Change) -> None:
        self._change = change

    def initial(self, module: nn.Module, lanes: Lanes[GPTParameters]) -> State:
        drawn, change = super().initial(module, lanes), self._change
        return {
            name: value * (_factor(change.start, name) / (_factor(change.steps, name) or 1.0))
            for name, value in drawn.items()
        }

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return super().loss(self._as_read(module), batch)

    def evaluate(self, module: nn.Module, batch: Batch) -> Batch:
        return super().evaluate(self._as_read(module), batch)

    def score_heads(self, lanes: Lanes[GPTParameters], state: State) -> HeadScores:
        return super().score_heads(lanes, self.read(state))

    def _as_read(self, module: nn.Module) -> GPT:
        return cast(GPT, partial(functional_call, module, self.read(dict(module.named_parameters()))))

    def read(self, state: Mapping[str, Tensor]) -> State:
        """Returns the weights that the model uses: each stored weight times the factor by which this study changes the
        size of the weight's optimizer steps."""
        factors = {name: _factor(self._change.steps, name) for name in state}
        return {name: value if factors[name] == 1.0 else value * factors[name] for name, value in state.items()}


def reproduce_changes(
    directory: Path,
    console: Console,
    first_seed: int = FIRST_SEED,
    n_seeds: int = N_SEEDS,
    n_steps: int | None = None,
) -> Comparison:
    """Trains 32 GPTs for each variant of the sweep `induction`, and counts those in which an induction head emerges."""
    del directory
    rows = []
    for change in CHANGES:
        console.print(f"training {n_seeds} GPTs: {change.row}")
        with one_thread():
            rows.append(_row(change, range(first_seed, first_seed + n_seeds), n_steps))
    return Comparison(
        title="induction-changed: why epsilon decides whether induction heads emerge",
        source="attnsweep, docs/gpt.md",
        rows=rows,
        notes=["Epsilon 1e-5 everywhere. At the end some head of the training has the role `induction`."],
    )


def _row(change: Change, seeds: range, n_steps: int | None) -> ComparedValue:
    shipped = induction.fixed()
    fixed = {"d_model": 16, "qk": "factored", "layer_norm_eps": 1e-5, "n_steps": N_STEPS, **change.values}
    ends = {} if n_steps is None else {"n_steps": n_steps}
    values = {**shipped, **fixed, "probe_every": None, **ends}
    probe = trained(ChangedGPT(change), seeds, values).result.heads[-1]
    n_with = int((probe.heads.role == "induction").any(axis=(1, 2)).sum())
    return share_row(change.row, n_with, len(seeds))


def _factor(factors: Factors, name: str) -> float:
    return next((factor for part, factor in factors.items() if part in name), 1.0)
