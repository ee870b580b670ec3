"""The words of systems P and C: they add up to the gradient, and say at which kind of point a training is."""

import math

import pytest
import torch
from torch import Tensor

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.lenses import words_of_categories, words_of_positions
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly, components, mean, shift
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.lenses import gradient_words
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import defaults
from attnsweep.workloads.words.terms import GradientWords

N, M = 10, 20
WORKLOAD = CategoryPairs()
EYE, MEAN = torch.eye(N, dtype=torch.float64), mean(N)


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def words_at(q: Tensor, v: Tensor, n_steps: int = 0) -> GradientWords:
    """Of system P near these weights, or after some steps of gradient descent from there."""
    system = PositionsOnly(N, M, softmax=False).double()
    system.load_state_dict({"q_MK": q + 1e-6 * noise(0, M, M - 1), "v_NN": v + 1e-6 * noise(1, N, N)})
    for _ in range(n_steps):
        found = words_of_positions(system)
        for name, value in system.named_parameters():
            value.data -= 0.03 * found.gradient(name)
    return words_of_positions(system)


@pytest.mark.parametrize(
    ("variant", "activation"),
    [("positions_only", "identity"), ("positions_only", "softmax"), ("categories_only", "identity")],
)
@pytest.mark.parametrize("rank", [None, 6])
def test_the_words_of_a_weight_add_up_to_its_gradient(variant: str, rank: int | None, activation: str) -> None:
    values: dict[str, Value] = {
        "variant": variant,
        "n_categories": 4,
        "n_positions": 5,
        "attention_activation": activation,
    }
    if rank is not None:
        values |= {"qk": "factored", "qk_rank": rank}
    parameters = defaults(WORKLOAD, **values)
    module = WORKLOAD.build(parameters).double()
    for seed, value in enumerate([*module.parameters(), *module.buffers()]):
        value.data = noise(seed, *value.shape)
    WORKLOAD.loss(module, {}).backward()
    words = gradient_words(WORKLOAD, Training(parameters, 0), module, {})
    assert words.is_product
    for name, value in module.named_parameters():
        assert value.grad is not None
        torch.testing.assert_close(words.gradient(name), value.grad, rtol=0, atol=1e-14 * float(value.grad.abs().max()))


def test_near_the_zero_all_words_are_small_and_nothing_cancels() -> None:
    large, small = (words_at(sigma * noise(2, M, M - 1), sigma * noise(3, N, N)) for sigma in (1e-2, 1e-3))
    assert large.state() == small.state() == "starved"
    assert all(each.left > 0.9 for each in small.balances())
    for of_large, of_small in zip(large.balances(), small.balances(), strict=True):
        assert of_large.pull / of_small.pull == pytest.approx(100, rel=0.1)


def test_at_the_mean_predictor_the_mean_is_balanced_and_the_rest_is_starved() -> None:
    words = words_at((1 - shift(M)) / (M - 1), MEAN)
    assert words.state() == "balanced in P, starved in I - P"
    assert all(each.left < 0.01 for each in words.balances() if each.part == "P")


def test_at_the_centred_shift_the_rest_is_balanced_and_the_mean_is_starved() -> None:
    v = (EYE - MEAN) - (N - 1) / M / N * torch.ones_like(MEAN)
    words = words_at(shift(M) - 1 / M, v)
    assert words.state() == "balanced in I - P, starved in P"
    (of_values,) = (each for each in words.balances() if (each.weight, each.part) == ("v_NN", "I - P"))
    assert of_values.left < 1e-3


def test_in_the_valley_at_infinity_large_words_cancel_while_the_norms_grow() -> None:
    v = (EYE - MEAN) - 3 * MEAN
    a, b, A, B = components(v)
    quadratic = A * torch.eye(M, dtype=torch.float64) + B
    q = torch.linalg.solve(quadratic, a * shift(M) + b)
    words = words_at(q, v, n_steps=100)
    assert words.state() == "bound with growing norms"
    assert words.growth() > 0


def test_at_the_solution_all_words_cancel() -> None:
    words = words_at(shift(M), EYE)
    assert words.state() == "balanced"
    assert all(each.left < 1e-3 and each.size > 3.5 for each in words.balances())


def test_on_the_way_to_the_solution_words_do_not_cancel() -> None:
    words = words_at(0.65 * shift(M), 0.65 * EYE)
    assert words.state() == "moving"
    assert all(0.3 < each.left < 0.8 for each in words.balances())


def test_weights_that_are_not_finite_are_not_called_balanced() -> None:
    assert words_at(math.nan * shift(M), EYE).state() == "moving"


@pytest.mark.parametrize(
    ("point", "state"),
    [("zero", "starved"), ("marginal", "balanced in P, starved in I - P"), ("solution", "balanced")],
)
def test_the_points_of_categories_only(point: str, state: str) -> None:
    system = CategoriesOnly(5, 6, softmax=False).double()
    target = noise(5, 5, 5)
    before = torch.eye(5, 6, dtype=torch.float64)
    last = torch.zeros(5, 6, dtype=torch.float64)
    last[:, 0] = 1.0
    last[0] = torch.tensor([0, 0, 1.0, 0, 0, 0])
    q, v = {
        "zero": (1e-3 * noise(6, 5, 5), 1e-3 * noise(7, 5, 6)),
        "marginal": (target.mean(0).expand(5, 5), last),
        "solution": (target, before),
    }[point]
    system.load_state_dict({"q_NN": q, "v_KM": v, "target_NN": target})
    assert words_of_categories(system).state() == state
