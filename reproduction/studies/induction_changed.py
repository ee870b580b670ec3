"""Why LayerNorm's epsilon decides whether induction heads emerge: GPTs with their start or their steps changed.

The trainings are those of the sweep `induction` with d_model 16 and factored logits. Axes: L lane, N block, H head.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from rich.console import Console
from torch import Tensor, nn
from torch.func import functional_call

from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import share_row
from attnsweep.reproduction.threads import one_thread
from attnsweep.search_spaces.catalog import induction
from attnsweep.workloads.engine.contract import Batch, HeadScores, Lanes, Training
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.gpt import GPTParameters
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.gpt.workload import GPTWorkload
from attnsweep.workloads.parameters import Value

FIRST_SEED, N_SEEDS = 1000, 32
N_STEPS = 600
WRITING = ("attention.out", "ffn.second")
"""The two layers of a block that write to the residual stream."""
EMBEDDINGS = ("token", "position")

Factors = Mapping[str, float]
"""By parts of the names of parameters; others have the factor 1."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The one thing in which trainings differ from those of the sweep.

    Attributes:
        row: Says it.
        values: Parameters of the training.
        start: Factors of the starting values.
        steps: Factors of the steps that parameters move by; at 0 they are left out of the model.
    """

    row: str
    values: Mapping[str, Value]
    start: Factors = field(default_factory=dict)
    steps: Factors = field(default_factory=dict)


_SMALL: Mapping[str, Value] = {"init_sigma": 0.1}
_PYTORCHS: Mapping[str, Value] = {"init_sigma": None}
_SLOW: Mapping[str, Value] = {"init_sigma": 0.1, "learning_rate": 0.001, "n_steps": 1200}
CHANGES = (
    Change(row="start 0.1, token embeddings times 10", values=_SMALL, start={"token": 10}),
    Change(row="start 0.1, token and position embeddings times 10", values=_SMALL, start=dict.fromkeys(EMBEDDINGS, 10)),
    Change(row="start 0.1, position embeddings divided by 10", values=_SMALL, start={"position": 0.1}),
    Change(row="PyTorch's start, token embeddings divided by 10", values=_PYTORCHS, start={"token": 0.1}),
    Change(
        row="start 0.1, steps of the embeddings ten times shorter", values=_SMALL, steps=dict.fromkeys(EMBEDDINGS, 0.1)
    ),
    Change(
        row="PyTorch's start, steps of the embeddings ten times longer",
        values=_PYTORCHS,
        steps=dict.fromkeys(EMBEDDINGS, 10),
    ),
    Change(
        row="start 0.1, steps of what writes to the stream ten times shorter",
        values=_SMALL,
        steps=dict.fromkeys(WRITING, 0.1),
    ),
    Change(
        row="start 0.1, without the biases of what writes to the stream",
        values=_SMALL,
        steps={f"{layer}.bias": 0 for layer in WRITING},
    ),
    Change(
        row="start 0.1, embeddings and what writes to the stream times 10",
        values=_SMALL,
        start=dict.fromkeys((*EMBEDDINGS, *WRITING), 10),
    ),
    Change(row="start 0.1, learning rate 0.001, 1,200 steps", values=_SLOW),
    Change(
        row="start 0.1, learning rate 0.001, 1,200 steps, embeddings and what writes to the stream divided by 10",
        values=_SLOW,
        start=dict.fromkeys((*EMBEDDINGS, *WRITING), 0.1),
    ),
)


class ChangedGPT(GPTWorkload):
    """GPTs that start elsewhere, or move some parameters in longer or shorter steps.

    A parameter whose steps are f times as long is stored divided by f, and the model reads f times what is stored:
    the start is the same function, and Adam's steps do not depend on the size of gradients.
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

    def answers(self, module: nn.Module, batch: Batch) -> Batch:
        return super().answers(self._as_read(module), batch)

    def score_heads(self, lanes: Lanes[GPTParameters], state: State) -> HeadScores:
        return super().score_heads(lanes, self.read(state))

    def _as_read(self, module: nn.Module) -> GPT:
        return cast(GPT, partial(functional_call, module, self.read(dict(module.named_parameters()))))

    def read(self, state: Mapping[str, Tensor]) -> State:
        """The values that the model reads, of those that are stored."""
        factors = {name: _factor(self._change.steps, name) for name in state}
        return {name: value if factors[name] == 1.0 else value * factors[name] for name, value in state.items()}


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 32 GPTs for each change, and counts those with an induction head."""
    del directory
    return compare(console)


def compare(
    console: Console, first_seed: int = FIRST_SEED, n_seeds: int = N_SEEDS, n_steps: int | None = None
) -> Comparison:
    """Trains GPTs for each change.

    Args:
        console: Shows progress.
        first_seed: Of the trainings.
        n_seeds: Of each change.
        n_steps: In place of those of the study.
    """
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
    shipped = induction.sweep().fixed()
    fixed = {"d_model": 16, "qk": "factored", "layer_norm_eps": 1e-5, "n_steps": N_STEPS, **change.values}
    ends = {} if n_steps is None else {"n_steps": n_steps}
    parameters = GPTParameters.resolve({**shipped, **fixed, "probe_every": None, **ends})
    pack = Pack(ChangedGPT(change), [Training(parameters, seed) for seed in seeds])
    while not pack.advance(10_000):
        pass
    probe = pack.result().heads[-1]
    n_with = int((probe.heads.role == "induction").any(axis=(1, 2)).sum())
    return share_row(change.row, n_with, len(seeds))


def _factor(factors: Factors, name: str) -> float:
    return next((factor for part, factor in factors.items() if part in name), 1.0)
