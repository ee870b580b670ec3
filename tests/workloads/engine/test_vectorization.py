"""What cannot be done for many trainings at once is said in one sentence, with the line where it stands."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.plain import check_as_plain
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.errors import SpecError
from tests.workloads.engine.any_module import AnyModule, AnyParameters, lanes_of

X = torch.ones(2, 4, dtype=torch.float64)


def _in_place(module: nn.Module) -> Tensor:
    total = torch.zeros(4, dtype=torch.float64)
    total[0] = module(X).sum()
    return total


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


class DoubledInContext(torch.autograd.Function):
    """Of the old form."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:  # noqa: ARG004
        return 2 * value


DOUBLED: Callable[[Tensor], Tensor] = Doubled.apply
DOUBLED_IN_CONTEXT: Callable[[Tensor], Tensor] = DoubledInContext.apply


def _clamped(module: Any) -> Any:
    with torch.no_grad():
        module.weight.clamp_(-1, 1)
    return module(X)


LOSSES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "noise": (
        lambda module: module(X + torch.rand_like(X)),
        "a random draw, for example by torch.randn_like",
    ),
    "if": (lambda module: module(X) if module(X).sum() > 0 else X, "a decision by the value of a tensor.*torch.where"),
    "item": (
        lambda module: module(X) * module(X).sum().item(),
        "a tensor's value as a Python number.*static parameter",
    ),
    "mask": (lambda module: module(X)[module(X) > 0], "a result whose shape depends on values.*the weight 0"),
    "nonzero": (lambda module: module(X).nonzero(), "a result whose shape depends on values.*the weight 0"),
    "in place": (_in_place, "a change in place of a tensor that all trainings share.*torch.stack"),
    "numpy": (
        lambda module: torch.tensor(module(X).detach().numpy()),
        r"a tensor's values outside of PyTorch.*compute it in PyTorch",
    ),
    "allclose": (
        lambda module: X if torch.allclose(module(X), X) else module(X),
        r"a decision by the value of a tensor \(torch.allclose\).*torch.where",
    ),
    "masked_select": (
        lambda module: module(X).masked_select(module(X) > 0),
        "a result whose shape depends on values .*weights and label_smoothing.*the weight 0",
    ),
    "clamped weight": (_clamped, r"a change in place of a parameter, for example by nn.Embedding\(max_norm=...\)"),
    "data": (lambda module: module(X) * module.weight.data.sum(), r"a tensor's .data.*use \.detach\(\)"),
    "copy": (lambda module: deepcopy(module)(X), "a copy of a module or of a tensor's memory.*with the module itself"),
    "function": (lambda module: DOUBLED(module(X)), "a torch.autograd.Function without a form.*generate_vmap_rule"),
    "old function": (lambda module: DOUBLED_IN_CONTEXT(module(X)), "a torch.autograd.Function whose forward takes"),
    "requires_grad_": (lambda module: module(X.clone().requires_grad_()), "a tensor made to require.*torch.func.grad"),
    "backward": (lambda module: module(X).sum().backward(), r"backward\(\) inside the loss.*torch.func.grad"),
    "rrelu": (lambda module: nn.functional.rrelu(module(X), training=True), "a random draw, by nn.RReLU.*nn.LeakyReLU"),
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
    "a sparse gradient": (
        lambda: nn.Embedding(4, 4, sparse=True),
        lambda module: module(torch.tensor([0, 1])),
        r"got 'a sparse gradient, for example of nn.Embedding\(sparse=True\)'.*leave sparse=True out",
    ),
    "a checkpoint": (
        lambda: nn.Linear(4, 4),
        lambda module: checkpoint(module, X, use_reentrant=False),
        "got 'torch.utils.checkpoint'.*leave it out",
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


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_layer_of_a_transformer_trains_in_evaluation_mode() -> None:
    """The fused operation that PyTorch would take there has no gradient."""
    workload = AnyModule(
        lambda _: nn.TransformerEncoderLayer(4, 2, 4, batch_first=True).eval(), lambda module: module(X[None])
    )
    trainings = lanes_of(AnyParameters(n_steps=1)).trainings
    with training_settings():
        check_as_plain(workload, trainings)
        assert Pack(workload, trainings).advance(1)
