"""The loss computed part by part equals the loss, for one training and over lanes."""

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from attnsweep.workloads.category_pairs.full_model import mean_by_parts
from attnsweep.workloads.engine.optimizers import State

GENERATOR = torch.Generator().manual_seed(0)
L, B, M = 3, 17, 4
TEXT = torch.randint(5, (L, B, M), generator=GENERATOR)
TRAINED = {name: torch.randn(L, 5, generator=GENERATOR, dtype=torch.float64) for name in ("w", "u")}
FIXED = {"target": torch.randn(L, 5, generator=GENERATOR, dtype=torch.float64)}


def _loss(state: dict[str, Tensor], text_BM: Tensor) -> tuple[Tensor, Tensor]:
    one_hot = (text_BM.unsqueeze(-1) == torch.arange(5)).double()
    error_B = torch.tanh(one_hot @ state["w"]).sum(1) - (one_hot @ state["target"]).sum(1)
    return error_B.square().mean(), error_B


def _over_lanes(n_texts: int) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Losses, what they return besides, and gradients."""
    leaves = {name: value.clone().requires_grad_() for name, value in TRAINED.items()}

    def by_parts(trained: State, fixed: State, text_BM: Tensor) -> tuple[Tensor, ...]:
        return mean_by_parts(_loss, trained, fixed, text_BM, n_texts)

    losses, errors = vmap(by_parts)(leaves, FIXED, TEXT)
    weights = torch.arange(1.0, L + 1).double()
    return losses, errors, torch.autograd.grad((weights * losses).sum(), list(leaves.values()), materialize_grads=True)


@pytest.mark.slow
@pytest.mark.parametrize("n_texts", [1, 5, 16])
def test_parts_of_any_size_give_the_loss_and_its_gradient(n_texts: int) -> None:
    torch.testing.assert_close(_over_lanes(n_texts), _over_lanes(B), rtol=1e-13, atol=1e-14)


def test_a_loss_that_is_only_looked_at_takes_no_gradient() -> None:
    trained, fixed = ({name: value[0] for name, value in state.items()} for state in (TRAINED, FIXED))
    with torch.no_grad():
        torch.testing.assert_close(mean_by_parts(_loss, trained, fixed, TEXT[0], 5), _loss(trained | fixed, TEXT[0]))


def test_a_second_derivative_is_refused_not_zero() -> None:
    trained, fixed = ({name: value[0].clone() for name, value in state.items()} for state in (TRAINED, FIXED))
    w = trained["w"].requires_grad_()
    mean, _ = mean_by_parts(_loss, trained, fixed, TEXT[0], 5)
    (gradient,) = torch.autograd.grad(mean, w, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(gradient.sum(), w)
