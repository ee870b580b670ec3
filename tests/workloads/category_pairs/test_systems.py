"""Systems P and C: the closed-form losses, their stationary points, and the levels of docs/theory.md."""

import itertools
from collections.abc import Iterator
from typing import TypeVar

import pytest
import torch

from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly

System = TypeVar("System", bound=PositionsOnly | CategoriesOnly)

N, M = 3, 4
SHIFT = torch.diag(torch.ones(M - 1, dtype=torch.float64), diagonal=1)


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


def _level_and_gradient(system: PositionsOnly | CategoriesOnly) -> tuple[float, float]:
    loss = system.population_loss()
    gradients = torch.autograd.grad(loss, list(system.parameters()))
    return loss.item() / (M - 1), max(gradient.abs().max().item() for gradient in gradients)


def _positions(q: torch.Tensor, v: torch.Tensor) -> PositionsOnly:
    system = PositionsOnly(N, M, softmax=False)
    system.q_MK.data, system.v_NN.data = q[:, 1:], v
    return system


CENTRED = torch.eye(N, dtype=torch.float64) - 1 / N
C = 1.7
STATIONARY = {
    "solution": (SHIFT / C, C * torch.eye(N, dtype=torch.float64), 0.0),
    "centred_shift": (
        (SHIFT - torch.nn.functional.pad(torch.full((M, M - 1), 1 / M, dtype=torch.float64), (1, 0))) / C,
        C * CENTRED
        + torch.full((N, 1), -C * (N - 1) / (M * N), dtype=torch.float64) @ torch.ones(1, N, dtype=torch.float64),
        1 / N + 1 / M - 1 / (N * M),
    ),
    "zero": (torch.zeros(M, M, dtype=torch.float64), torch.zeros(N, N, dtype=torch.float64), 1.0),
}


@pytest.mark.parametrize("family", STATIONARY)
def test_stationary_points_of_positions_only(family: str) -> None:
    q, v, wanted = STATIONARY[family]
    level, gradient = _level_and_gradient(_positions(q, v))
    assert level == pytest.approx(wanted, abs=1e-12)
    assert gradient < 1e-12
    named = _positions(q, v).reference_levels()
    assert named.get(family, torch.zeros(())).item() == pytest.approx(wanted, abs=1e-12)


def test_the_mean_predictor_of_positions_only_is_stationary_at_its_level() -> None:
    s = 2.0
    q = torch.zeros(M, M)
    q[0] = s  # column sums s; position 0 precedes position 1 alone:
    q[0, 1], q[3, 1] = 0.0, s  # so that no column reads its predecessor.
    level, gradient = _level_and_gradient(_positions(q, torch.full((N, N), 1 / (N * s))))
    assert level == pytest.approx(1 - 1 / N)
    assert gradient < 1e-12


def test_the_valley_at_infinity_falls_towards_its_level() -> None:
    levels = []
    for rho in (-10.0, -100.0, -1000.0):
        # The best q for v: each column solves A q_ji + B s_i = a [j = i-1] + b.
        a, b, A, B = N - 1, rho, N - 1, rho**2
        s = (a + M * b) / (A + M * B)
        system = _positions((a * SHIFT + b - B * s) / A, CENTRED + rho / N)
        levels.append(system.population_loss().item() / (M - 1))
        assert levels[-1] == pytest.approx(((N - 1) / N) * (1 - rho) ** 2 / ((N - 1) + M * rho**2), rel=1e-6)
    assert levels == sorted(levels, reverse=True)
    valley = _positions(torch.zeros(M, M), CENTRED).reference_levels()["valley"].item()
    assert levels[-1] > valley
    assert levels[-1] == pytest.approx(valley, rel=0.01)


def test_the_solution_of_categories_only() -> None:
    system = _random(CategoriesOnly(N, M, softmax=False))
    assert isinstance(system, CategoriesOnly)
    c, d = 1.3, 0.4
    a = -d / (1 + d) * system.target_NN.diagonal()
    system.q_NN.data = (system.target_NN + a) / c
    system.v_KM.data = torch.zeros(M - 1, M)
    for i in range(1, M):
        system.v_KM.data[i - 1, i - 1], system.v_KM.data[i - 1, i] = c, c * d
    level, gradient = _level_and_gradient(system)
    assert abs(level) < 1e-15
    assert gradient < 1e-13


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
