"""The shapes of trainings whose steps the benchmarks measure: as packs, and as plain loops of PyTorch.

Among them are problems with a model of a user's own. Axes: B sequence, T token, V word.
"""

import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from harness import cpu_seconds
from torch import Tensor, nn

import attnsweep as at
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.construction import starting_state
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.formal_languages import FormalLanguages
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.parameters import TrainingParameters
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.translation import Translation
from shared.decoder import Decoder


def next_token(V: int, B: int, T: int) -> Callable[[at.Draw], tuple[Tensor, Tensor]]:
    def data(draw: at.Draw) -> tuple[Tensor, Tensor]:
        words = draw.integers(V, B, T + 1)
        return words[:, :-1], words[:, 1:]

    return data


def sums() -> tuple[Tensor, Tensor]:
    """All pairs of numbers modulo 17, and their sums."""
    pairs = torch.cartesian_prod(torch.arange(17), torch.arange(17))
    return pairs, pairs.sum(1) % 17


def answer_of(draw: at.Draw) -> tuple[Tensor, Tensor]:
    """A batch, and the answers of its linear teacher."""
    x = draw.normal(64, 16)
    return x, x @ draw.fixed.normal(16, 1)


def student() -> nn.Module:
    """The network of HFTA's comparison."""
    return nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))


def of_user(name: str, model: Callable[..., nn.Module], data: Callable[..., Any], loss: str = "cross_entropy") -> Any:
    return at.problem(name, model=model, data=data, loss=loss, solved=1e-9)()


RECALL = load_workload(f"{Path(__file__).with_name('recall.py')}:recall")
ENDLESS: dict[str, Any] = {"n_steps": 10**7, "stop_when_solved": False, "learning_rate": 1e-3, "init_sigma": 0.05}
ADAMW: dict[str, Any] = ENDLESS | {"optimizer": "adamw", "dtype": "float32", "init_sigma": None}
STRINGS: dict[str, Any] = {"n_epochs": 1000, "steps_per_epoch": 2048, "eval_batch_size": 1, "test_batch_size": 1}
STRINGS |= {"test_ladder": False, "stop_when_solved": False}
SAMPLED: dict[str, Any] = {"variant": "solution_3", "expectation": "fixed_sample"}
INDUCTION: dict[str, Any] = {"task": "induction", "n_words": 16, "n_tokens": 16, "n_blocks": 2, "d_model": 32}
INDUCTION |= {"d_ffn": 32, "batch_size": 16, "eval_batch_size": 32, "dtype": "float32", "optimizer": "sgd"}
PAIRS, LANGUAGES = CategoryPairs(), FormalLanguages()
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@dataclass(frozen=True)
class Shape:
    """A kind of trainings, as many as are asked for.

    Attributes:
        settings: Parameters of the trainings, in turn.
        most_steps: None of the trainings ends before it has taken so many.
    """

    workload: Workload[Any]
    settings: list[dict[str, Any]]
    most_steps: int = 10**6

    @property
    def is_searched(self) -> bool:
        """Whether its steps search along lines. They differ, so they have no graph."""
        return any(each.get("optimizer") == "lbfgs" for each in self.settings)

    def trainings(self, size: int) -> list[Training[Any]]:
        """With the seeds 0, 1, ..."""
        settings = islice(cycle(self.settings), size)
        return [Training(defaults(self.workload, **each), seed) for seed, each in enumerate(settings)]

    def pack(self, size: int, device: str = "cpu", **named: Any) -> Pack[Any]:
        """A pack of `size` trainings, probed at both ends only; `named` goes to `Pack`."""
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
    """A clock of CPU seconds; for a GPU, of wall seconds, read when the device has finished."""

    def after_device() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return after_device if device.startswith("cuda") else cpu_seconds


def plain_loop(shape: Shape) -> Callable[[int], object]:
    """A function that takes n steps of one training as a loop of PyTorch does, on the batch of step 0."""
    [training] = shape.trainings(1)
    lanes = Lanes([training], torch.device("cpu"))
    parameters, buffers, _ = starting_state(shape.workload, lanes, None)
    module = shape.workload.build(training.parameters).to(lanes.dtype)
    module.load_state_dict({name: value[0] for name, value in (parameters | buffers).items()}, strict=False)
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
    "system C, float64": Shape(PAIRS, [ENDLESS | {"variant": "categories_only"}]),
    "induction": Shape(GPTWorkload(), [ENDLESS | INDUCTION | {"learning_rate": 1e-2}]),
    "FIRST, length 30": Shape(LANGUAGES, [STRINGS | {"language": "first", "train_length": 30}]),
    "FIRST, lengths 10 to 300": Shape(
        LANGUAGES, [STRINGS | {"language": "first", "train_length": n} for n in (10, 30, 100, 300)]
    ),
    "PARITY, two layers": Shape(LANGUAGES, [STRINGS | {"language": "parity", "n_layers": 2}]),
    "HFTA's network": Shape(of_user("student", student, answer_of, "mse"), [ADAMW | {"optimizer": "adam"}]),
    "two layers of attention, d = 16": Shape(
        of_user("attention", lambda: Decoder(8, 8, 16, ffn=0), next_token(8, 4, 8)), [ADAMW | {"optimizer": "adam"}]
    ),
    "nanoGPT, d = 64": Shape(of_user("nanogpt", lambda: Decoder(64, 32, 64, 4), next_token(64, 32, 32)), [ADAMW]),
    "recall, dropout 0": Shape(RECALL, [ADAMW]),
    "recall, dropout 0.1": Shape(RECALL, [ADAMW | {"dropout": 0.1}]),
    "addition, 289 pairs": Shape(
        of_user("addition", lambda: Decoder(17, 2, 24, 4, is_last=True), sums), [ADAMW | {"train_fraction": 1.0}]
    ),
    "solution 3, L-BFGS, float64": Shape(
        PAIRS,
        [SAMPLED | {"batch_size": 50, "optimizer": "lbfgs", "n_steps": 10**6, "stop_when_solved": False}],
        most_steps=36,
    ),
    "translation, float32": Shape(
        Translation(),
        [{"n_sentences": 200, "eval_sentences": 8, "head_sentences": 0, "test_sentences": 4, "n_steps": 10**7}],
    ),
}
GPU_SHAPES = (
    *("system P, float64", "system C, float64", "FIRST, lengths 10 to 300"),
    *("solution 3, L-BFGS, float64", "translation, float32"),
)
