"""Systems P and C: the closed-form losses, their stationary points, and levels (docs/notes/2026-11-21-theory.md)."""

import itertools
from collections.abc import Iterator
from typing import TypeVar

import pytest
import torch

from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly

System = TypeVar("System", bound=PositionsOnly | CategoriesOnly)

N, M = 3, 4


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def _random(system: System) -> System:
    generator = torch.Generator().manual_seed(0)
    for value in (*system.parameters(), *system.buffers()):
        value.data.normal_(generator=generator)
    return system


def _all_texts() -> torch.Tensor:
    return torch.tensor(list(itertools.product(range(N), repeat=M)))


@pytest.mark.parametrize(
    "system",
    [PositionsOnly(N, M, softmax=False), PositionsOnly(N, M, softmax=True), CategoriesOnly(N, M, softmax=False)],
)
def test_the_closed_form_is_the_mean_over_all_texts(system: PositionsOnly | CategoriesOnly) -> None:
    _random(system.double())
    torch.testing.assert_close(system.population_loss(), system.sampled_loss(_all_texts()), rtol=1e-13, atol=0.0)


def test_the_sampled_loss_of_positions_only_is_the_definition() -> None:
    system = _random(PositionsOnly(N, M, softmax=False))
    text = torch.tensor([[2, 0, 1, 1]])
    one_hot = torch.eye(N)[text[0]]
    wanted = torch.zeros(())
    for i in range(1, M):
        attended = torch.stack([system.q_MK[j, i - 1] * one_hot[j] for j in range(M)]).sum(0)
        wanted = wanted + (one_hot[i - 1] - system.v_NN @ attended).square().sum()
    torch.testing.assert_close(system.sampled_loss(text), wanted)


@pytest.mark.parametrize("softmax", [False, True])
def test_the_sampled_loss_of_categories_only_is_the_definition(softmax: bool) -> None:
    system = _random(CategoriesOnly(N, M, softmax=softmax))
    text = [2, 0, 1, 1]
    wanted = torch.zeros(())
    for i in range(1, M):
        column = torch.stack([system.q_NN[text[j], text[i]] for j in range(M)])
        weights = column.softmax(0) if softmax else column
        wanted = wanted + (system.target_NN[text[i - 1], text[i]] - system.v_KM[i - 1] @ weights).square()
    torch.testing.assert_close(system.sampled_loss(torch.tensor([text])), wanted)


C = 1.7


def test_levels_on_texts_are_what_the_predictors_score_on_them() -> None:
    system = _random(CategoriesOnly(N, M, softmax=False))
    assert isinstance(system, CategoriesOnly)
    exact, every = system.reference_levels(), system.reference_levels(_all_texts())
    for name, level in exact.items():
        torch.testing.assert_close(every[name], level)
    texts = _all_texts()[:5]
    levels = system.reference_levels(texts)
    pairs = [(text[i - 1], text[i]) for text in texts for i in range(1, M)]
    deviation = torch.stack([system.target_NN[pair] - system.target_NN.mean() for pair in pairs])
    assert levels["solved"].item() == pytest.approx(0.01 * deviation.square().mean().item())
    system.v_KM.data.zero_()
    assert system.sampled_loss(texts).item() / (M - 1) == pytest.approx(levels["zero"].item())
    system.q_NN.data = system.target_NN.mean(0).expand(N, N).clone()
    system.v_KM.data = torch.eye(M)[1:]
    assert system.sampled_loss(texts).item() / (M - 1) == pytest.approx(levels["marginal"].item())
