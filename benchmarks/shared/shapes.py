"""The shapes of trainings whose steps the benchmarks measure: as packs, and as plain loops of PyTorch.

Among them are two workloads written as a user would write them: two layers that predict the next token, and a block
that adds. Axes: B sequence, T token, D channel, V word.
"""

import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, cast

import torch
from harness import cpu_seconds
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attnsweep import (
    AtLevel,
    Batch,
    Embedding,
    Linear,
    Rule,
    Sight,
    TransformerBlock,
    VerdictTable,
)
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.construction import starting_state
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.parameters import TrainingParameters
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation

B, T, D, V = 4, 8, 16, 8
P, CHANNELS, HEADS = 17, 24, 4


class Attention(nn.Module):
    """x + W softmax(q k' / sqrt(D)) v, causal, with one head."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inputs, self.output = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.register_buffer("mask", torch.full((T, T), -1e9).triu(1))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D)."""
        q, k, v = self.inputs(self.norm(x_BTD)).chunk(3, dim=-1)
        weights_BTT = torch.softmax(q @ k.mT / D**0.5 + self.mask, dim=-1)
        out: Tensor = x_BTD + self.output(weights_BTT @ v)
        return out


class Transformer(nn.Module):
    """Embeddings, two layers, and the logits of the next token."""

    words_BTV: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.word_VD, self.position_TD = nn.Parameter(torch.zeros(V, D)), nn.Parameter(torch.zeros(T, D))
        self.layers = nn.Sequential(Attention(), Attention())
        self.head = nn.Linear(D, V)
        steps_B1 = torch.arange(1, 2 * B, 2).view(-1, 1)
        self.register_buffer("words_BTV", torch.eye(V)[steps_B1 * torch.arange(T + 1) % V])

    def forward(self) -> Tensor:
        """(B, T, V)."""
        logits: Tensor = self.head(self.layers(self.words_BTV[:, :-1] @ self.word_VD + self.position_TD))
        return logits


class Classifies(Workload[TrainingParameters]):
    """A problem whose module has the logits of its `head`; without input all words are equally likely."""

    parameters, level_names = TrainingParameters, ("zero",)
    verdicts = VerdictTable(
        (
            Rule.diverged(),
            Rule.solved(),
            AtLevel(outcome="degenerate_zero", level="zero", says="equal logits"),
            Rule.moving(),
        )
    )

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:  # noqa: ARG002
        bias = cast(nn.Linear, module.head).bias
        zero = torch.full_like(bias[0], len(bias)).log()
        return {"zero": zero, "solved": 0.1 * zero}


class NextToken(Classifies):
    """Counting in steps of 1, 3, 5 and 7, modulo 8."""

    name, summary = "next_token", "which token comes next?"

    def build(self, parameters: TrainingParameters) -> nn.Module:  # noqa: ARG002
        return Transformer()

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:  # noqa: ARG002
        next_BTV = cast(Transformer, module).words_BTV[:, 1:]
        return -(torch.log_softmax(module(), dim=-1) * next_BTV).sum(-1).mean()


class Adder(nn.Module):
    """The logits (B, p) of the sums of pairs (B, 2): one causal block of four heads over two tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = Embedding(P, CHANNELS), Embedding(2, CHANNELS)
        self.block, self.head = TransformerBlock(CHANNELS, HEADS), Linear(CHANNELS, P)

    def forward(self, pair: Tensor) -> Tensor:
        """(B, p)."""
        x = self.token(pair) + self.position.weight
        out: Tensor = self.head(self.block(x, Sight.causal(x))[0][:, -1])
        return out


class Addition(Classifies):
    """a + b mod p on the same pairs in each step."""

    name, summary = "addition", "a + b mod 17"

    def __init__(self, n_pairs: int = P * P) -> None:
        self.pair = torch.cartesian_prod(torch.arange(P), torch.arange(P))[torch.linspace(0, P * P - 1, n_pairs).long()]

    def build(self, parameters: TrainingParameters) -> nn.Module:  # noqa: ARG002
        return Adder()

    def batch(self, lanes: Lanes[TrainingParameters], step: int) -> Batch:  # noqa: ARG002
        return {"pair": self.pair.expand(len(lanes.trainings), -1, -1)}

    def eval_batch(self, lanes: Lanes[TrainingParameters]) -> Batch:
        return self.batch(lanes, 0)

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return cross_entropy(module(batch["pair"]), batch["pair"].sum(-1) % P)


ENDLESS: dict[str, Any] = {"n_steps": 10**7, "stop_when_solved": False, "learning_rate": 1e-3, "init_sigma": 0.05}
STRINGS: dict[str, Any] = {"n_epochs": 4, "steps_per_epoch": 2048, "eval_batch_size": 1, "test_batch_size": 1}
STRINGS |= {"test_ladder": False, "stop_when_solved": False}
SAMPLED: dict[str, Any] = {"variant": "solution_3", "expectation": "fixed_sample"}
PAIRS, LANGUAGES = CategoryPairs(), FormalLanguages()
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@dataclass(frozen=True)
class Shape:
    """One shape.

    Attributes:
        workload: Its problem.
        settings: Parameters of its trainings, in turn.
        most_steps: The steps that all its trainings take before the first may end.
    """

    workload: Workload[Any]
    settings: list[dict[str, Any]]
    most_steps: int = 10**6

    @property
    def is_searched(self) -> bool:
        """Whether its steps search along lines. They differ, so they have no graph."""
        return any(each.get("optimizer") == "lbfgs" for each in self.settings)

    def trainings(self, size: int) -> list[Training[Any]]:
        """So many trainings."""
        settings = islice(cycle(self.settings), size)
        return [Training(defaults(self.workload, **each), seed) for seed, each in enumerate(settings)]

    def pack(self, size: int, device: str = "cpu", **named: Any) -> Pack[Any]:
        """A pack of so many, probed at both ends only; `named` as `Pack` takes them."""
        return Pack(unprobed(self.workload), self.trainings(size), device, **named)


def unprobed(workload: Workload[Any]) -> Workload[Any]:
    """The same problem, probed at both ends only: its steps are measured."""

    class Unprobed(type(workload)):  # type: ignore[misc]
        def probe_steps(self, parameters: TrainingParameters) -> tuple[int, ...]:
            return 0, parameters.n_steps

    found = copy(workload)
    found.__class__ = Unprobed
    return found


def clock_of(device: str) -> Callable[[], float]:
    """CPU seconds; on a GPU those that pass until it has done what it was asked."""

    def after_all() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return after_all if device.startswith("cuda") else cpu_seconds


def started(workload: Workload[Any], training: Training[Any], device: str = "cpu") -> torch.nn.Module:
    """The module of one training at its start, with its task."""
    lanes = Lanes([training], torch.device(device))
    parameters, buffers, _ = starting_state(workload, lanes, None)
    module = workload.build(training.parameters).to(device, lanes.dtype)
    module.load_state_dict({name: value[0] for name, value in (parameters | buffers).items()}, strict=False)
    return module


def plain_loop(shape: Shape, device: str = "cpu") -> Callable[[int], object]:
    """Takes steps of one training as a loop of PyTorch does, on the batch of step 0."""
    [training] = shape.trainings(1)
    module = started(shape.workload, training, device)
    lanes = Lanes([training], torch.device(device))
    batch = {name: value[0] for name, value in shape.workload.batch(lanes, 0).items()}
    make = OPTIMIZERS[training.parameters.optimizer]
    optimizer = make(module.parameters(), lr=training.parameters.learning_rate)

    def advance(n_steps: int) -> None:
        for _ in range(n_steps):
            optimizer.zero_grad()
            shape.workload.loss(module, batch).backward()
            optimizer.step()

    return advance


SHAPES = {
    "system P, float64": Shape(PAIRS, [ENDLESS | {"variant": "positions_only"}]),
    "system P, Adam, float32": Shape(
        PAIRS, [ENDLESS | {"variant": "positions_only", "optimizer": "adam", "dtype": "float32"}]
    ),
    "system C, float64": Shape(PAIRS, [ENDLESS | {"variant": "categories_only"}]),
    "FIRST, lengths 10 to 300": Shape(
        LANGUAGES, [STRINGS | {"language": "first", "train_length": n} for n in (10, 30, 100, 300)]
    ),
    "PARITY, two layers": Shape(LANGUAGES, [STRINGS | {"language": "parity", "n_layers": 2}]),
    "a user's two-layer attention, Adam, float32": Shape(
        NextToken(), [ENDLESS | {"optimizer": "adam", "dtype": "float32"}]
    ),
    "solution 3, Adam, float64": Shape(PAIRS, [ENDLESS | SAMPLED | {"batch_size": 60, "optimizer": "adam"}]),
    "solution 3, L-BFGS, float64": Shape(
        PAIRS,
        [SAMPLED | {"batch_size": 50, "optimizer": "lbfgs", "n_steps": 10**6, "stop_when_solved": False}],
        most_steps=36,
    ),
    "translation, float32": Shape(
        Translation(),
        [{"n_sentences": 200, "eval_sentences": 8, "head_sentences": 0, "test_sentences": 4, "n_steps": 10**7}],
    ),
    **{
        f"addition, {n_pairs} pairs": Shape(
            Addition(n_pairs), [ENDLESS | {"optimizer": "adamw", "dtype": "float32", "init_sigma": 0.2}]
        )
        for n_pairs in (8, 32, 289)
    },
}
GPU_SHAPES = (
    *("system P, float64", "system C, float64", "FIRST, lengths 10 to 300"),
    *("solution 3, L-BFGS, float64", "translation, float32"),
)
"""Those that `gpu.py` measures."""
