"""What cannot be done for many trainings at once is said in one sentence, with the line where it stands."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.errors import SpecError
from tests.workloads.engine.any_module import AnyModule, AnyParameters, lanes_of

X = torch.ones(2, 4, dtype=torch.float64)


class Doubled(torch.autograd.Function):
    """Without a rule for `vmap`."""

    @staticmethod
    def forward(value: Tensor) -> Tensor:
        return 2 * value

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return 2 * gradient


DOUBLED: Callable[[Tensor], Tensor] = Doubled.apply


LOSSES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "item": (
        lambda module: module(X) * module(X).sum().item(),
        "a tensor's value as a Python number.*static parameter",
    ),
    "mask": (lambda module: module(X)[module(X) > 0], "a result whose shape depends on values.*the weight 0"),
    "function": (lambda module: DOUBLED(module(X)), "a torch.autograd.Function without a form.*generate_vmap_rule"),
    "data": (lambda module: module(X) * module.weight.data.sum(), "accessing `data` under vmap"),
    "out": (lambda module: torch.div(module(X), 2, out=torch.empty_like(X)), "an operation that has no form for many"),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(("answer", "sentence"), LOSSES.values(), ids=LOSSES)
def test_it_is_said_in_one_sentence(answer: Callable[[Any], Any], sentence: str) -> None:
    workload = AnyModule(lambda _: nn.Linear(4, 4), answer)
    with pytest.raises(SpecError, match=rf"^test_vectorization.py, line \d+: got ['\"]{sentence}") as caught:
        Pack(workload, lanes_of(AnyParameters(), AnyParameters()).trainings).advance(1)
    assert "\n" not in str(caught.value)


ON_THE_WAY_BACK: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Tensor], str]] = {
    "a checkpoint": (
        lambda: nn.Linear(4, 4),
        lambda module: checkpoint(module, X, use_reentrant=False),
        "got 'a tensor of an earlier call, or .* leave torch.utils.checkpoint out",
    ),
    "no gradient": (
        lambda: nn.Linear(4, 4),
        lambda module: module(X).detach(),
        r"got 'a value that no parameter of the module changes'.*without detach\(\)",
    ),
}


@pytest.mark.parametrize(("build", "answer", "sentence"), ON_THE_WAY_BACK.values(), ids=ON_THE_WAY_BACK)
def test_a_loss_without_a_gradient_is_said_in_one_sentence(
    build: Callable[[], nn.Module], answer: Callable[[nn.Module], Tensor], sentence: str
) -> None:
    with pytest.raises(SpecError, match=f"loss: {sentence}") as caught:
        Pack(AnyModule(lambda _: build(), answer), lanes_of(AnyParameters()).trainings).advance(1)
    assert "\n" not in str(caught.value)
