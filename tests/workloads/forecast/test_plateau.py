"""The longest plateau of a pilot: which blocks are still small there, and the orders of their gradients."""

import numpy as np
import pytest

from attnsweep import defaults
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.forecast.plateau import longest_plateau, plateau_of
from attnsweep.workloads.gpt import GPTWorkload

NAMES = ("query", "value", "head")
STEPS = np.array([1, 10, 20, 40, 60, 70])


def sizes(*rows: tuple[float, float, float]) -> np.ndarray:
    """(C, 2, 3) the same for two seeds."""
    return np.repeat(np.array(rows)[:, None, :], 2, axis=1)


def test_the_longest_plateau_is_that_of_the_blocks_that_are_small_for_most_steps() -> None:
    """The head grows between steps 1 and 10, the values between 40 and 60, the queries after 60."""
    found_sizes = sizes((1, 1, 1), (1, 0.99, 0), (1, 1.1, 0.1), (1, 1, 0), (1.01, 0.1, 0), (0, 0, 0))
    orders = sizes((9, 9, 9), (3, 1, 0), (3.3, 1, 5), (2.7, 1.3, 0), (1, 0, 0), (9, 9, 9))
    orders[:, 1] += 0.2
    found = plateau_of(NAMES, STEPS, found_sizes, orders)
    assert found is not None
    assert (found.first, found.last, found.n_seeds) == (10, 40, 2)
    query, value = found.orders
    assert (query.parameter, value.parameter) == ("query", "value")
    assert (query.low, query.order, query.high) == pytest.approx((3.0, 3.1, 3.2))
    assert value.order == pytest.approx(1.2)


def test_a_seed_that_grows_later_counts_at_its_own_steps() -> None:
    found_sizes = sizes((1, 1, 1), (1, 1, 0), (1, 1, 0), (1, 0, 0), (1, 0, 0), (0, 0, 0))
    found_sizes[:4, 1] = 1, 1, 0
    orders = np.where(found_sizes[..., 1:2] == 1, 3.0, 1.0) * np.ones(3)
    found = plateau_of(NAMES, STEPS, found_sizes, orders)
    assert found is not None
    assert [each.order for each in found.orders] == [3.0, 3.0]
    assert (found.first, found.last) == (1, 40)


@pytest.mark.parametrize("row", [(1, 1, 1), (0, 0, 0), (0, 0.5, np.nan)])
def test_the_start_and_an_end_without_small_blocks_are_no_plateau(row: tuple[float, float, float]) -> None:
    assert plateau_of(NAMES, STEPS, sizes(*[row] * 6), sizes(*[row] * 6)) is None


@pytest.mark.scale
def test_queries_of_a_gpt_have_order_three_until_the_values_grow() -> None:
    workload = GPTWorkload()
    parameters = defaults(
        workload, task="bigram_table", d_ffn=32, optimizer="sgd", learning_rate=0.3, n_steps=40, layer_norm_eps=1e-8,
        qk="factored",
    )  # fmt: skip
    with training_settings():
        found = longest_plateau(workload, parameters, 1e-4, range(8), seconds=60.0)
    assert found is not None
    orders = {each.parameter.removeprefix("blocks.0."): each.order for each in found.orders}
    assert orders["attention.query.weight"] == pytest.approx(3.0, abs=0.5)
    assert orders["attention.value.weight"] == pytest.approx(1.0, abs=0.5)
    assert not {"head.weight", "token.weight"} & set(orders)
