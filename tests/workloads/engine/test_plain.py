"""The engine computes of each training what plain PyTorch computes of it alone, or refuses it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.plain import check_as_plain
from attnsweep.workloads.errors import SpecError
from tests.workloads.engine.any_module import AnyModule, AnyParameters, lanes_of

X = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
WORDS = torch.tensor([[0, 1, 2], [0, 0, 3]])
PARAMETERS = [AnyParameters(n_steps=3, gain=gain, init_sigma=None, stop_when_solved=False) for gain in (1.0, 2.0)]
GLOBAL = {"gain": 1.0}


class Line(nn.Module):
    """A linear layer beside something else."""

    def __init__(self, parameters: AnyParameters) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(()))
        self.last: Tensor | None = None
        self.held = [self.line.weight]
        self.generator = np.random.default_rng(0)
        GLOBAL["gain"] = parameters.gain

    def forward(self) -> Tensor:
        answer: Tensor = self.line(X)
        return answer


def _remembered(module: Any) -> Any:
    before, module.last = module.last, module()
    return module.last if before is None else module.last + 0.1 * before.detach()


def _hooked(module: Any) -> Any:
    answer: Tensor = module()
    if answer.requires_grad:
        answer.register_hook(lambda gradient: 0.5 * gradient)
    return answer


LOSSES: dict[str, tuple[Callable[[Any], Tensor], str]] = {
    "the last output": (_remembered, "the loss: got 'a loss whose value changes when it is computed again'"),
    "a parameter in a list": (
        lambda module: X @ module.held[0],
        "the gradient of line.weight: got 'other values when computed together",
    ),
    "a hook on gradients": (
        _hooked,
        "the gradient of line.weight: got 'other values when computed together with another",
    ),
    "a global": (
        lambda module: module() * GLOBAL["gain"],
        "the loss: got 'the value .* together with another training', expected the value .* alone",
    ),
    "a generator of its own": (
        lambda module: module() * module.generator.random(),
        "the loss: got 'a loss whose value",
    ),
}


def _trainings() -> Any:
    return lanes_of(*PARAMETERS).trainings


@pytest.mark.parametrize(("answer", "sentence"), LOSSES.values(), ids=LOSSES)
def test_what_is_not_of_one_training_is_refused(answer: Callable[[Any], Tensor], sentence: str) -> None:
    with pytest.raises(SpecError, match=f"^{sentence}") as caught:
        check_as_plain(AnyModule(Line, answer), _trainings())
    assert "\n" not in str(caught.value)


class Words(AnyModule):
    """Predicts each word from itself."""

    def batch(self, lanes: Any, step: int) -> dict[str, Tensor]:
        del step
        return {"words": WORDS.expand(len(lanes.trainings), -1, -1)}

    def eval_batch(self, lanes: Any) -> dict[str, Tensor]:
        return self.batch(lanes, 0)

    def loss(self, module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return cross_entropy(module(batch["words"]).flatten(0, 1), batch["words"].flatten())


@pytest.mark.slow
@pytest.mark.parametrize("padding", [0, 2, -1])
def test_no_training_learns_its_padding_row(padding: int) -> None:
    """In PyTorch 2.13 `vmap` cuts the gradient of the first lane's padding row only."""
    workload = Words(lambda _: nn.Sequential(nn.Embedding(4, 3, padding_idx=padding), nn.Linear(3, 4)))
    pack = Pack(workload, _trainings())
    _, start = pack.final_state(np.arange(2))
    pack.advance(3)
    _, end = pack.final_state(np.arange(2))
    moved = (end["0.weight"] != start["0.weight"]).any(2)
    assert not moved[:, padding].any()
    assert moved.sum() == 6
    check_as_plain(workload, _trainings())
