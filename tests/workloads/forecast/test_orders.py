"""Orders of the gradient in init_sigma: the known ones, and that they depend on the seed alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attnsweep import defaults
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.engine.contract import Lanes
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.forecast.orders import NotAScaleFamilyError, norm_threshold, orders
from attnsweep.workloads.gpt import GPTWorkload

PAIRS = CategoryPairs()
SMALL = {"n_categories": 4, "n_positions": 5}


@pytest.mark.parametrize(("qk", "order"), [("merged", 1.0), ("factored", 2.0)])
def test_order_counts_the_other_factors(qk: str, order: float) -> None:
    found = orders(PAIRS, defaults(PAIRS, **SMALL, qk=qk), 1e-4, range(3))
    assert [each.order for each in found] == pytest.approx([order] * len(found), abs=1e-4)


@given(seeds=st.lists(st.integers(0, 2**40), min_size=2, max_size=6, unique=True), lane=st.integers(0, 5))
@settings(max_examples=10)
def test_order_depends_neither_on_lane_nor_on_pack(seeds: list[int], lane: int) -> None:
    parameters, seed = defaults(PAIRS, **SMALL, qk="factored"), seeds[lane % len(seeds)]
    alone = orders(PAIRS, parameters, 0.5, [seed])
    among = orders(PAIRS, parameters, 0.5, [seed, seed, *seeds])
    for one, many in zip(alone, among, strict=True):
        assert one.order is not None
        assert many.low is not None
        assert many.high is not None
        assert many.low - 1e-12 <= one.order <= many.high + 1e-12
    twice = orders(PAIRS, parameters, 0.5, [seed] * (lane + 1))
    assert [each.order for each in twice] == pytest.approx([each.order for each in alone], abs=1e-12)


def test_orders_of_a_gpt_below_and_above_the_threshold_of_its_norms() -> None:
    gpt = GPTWorkload()
    parameters = defaults(gpt, layer_norm_eps=1e-8, n_steps=10)
    assert norm_threshold(gpt, parameters, 0) == pytest.approx(1e-4)
    for sigma, expected in ((1e-2, 3.0), (1e-7, 7.0)):
        found = {each.parameter: each.order for each in orders(gpt, parameters, sigma, range(3))}
        assert found["blocks.0.attention.query.weight"] == pytest.approx(expected, abs=0.05)


def test_system_p_has_no_norm() -> None:
    assert norm_threshold(PAIRS, defaults(PAIRS, **SMALL), 0) is None


class Unscaled(CategoryPairs):
    """A workload whose own draw ignores `init_sigma`."""

    def initial(self, module: nn.Module, lanes: Lanes[CategoryPairsParameters]) -> State:
        drawn = super().initial(module, lanes)
        return drawn | {"v_NN": lanes.streams.normal("v", tuple(drawn["v_NN"].shape[1:]))}


class Shifted(CategoryPairs):
    """A workload that adds a constant to a draw."""

    def initial(self, module: nn.Module, lanes: Lanes[CategoryPairsParameters]) -> State:
        return {name: value + 1e-3 for name, value in super().initial(module, lanes).items()}


def test_a_parameter_that_ignores_init_sigma_stays_fixed() -> None:
    found = {each.parameter: each.order for each in orders(Unscaled(), defaults(PAIRS, **SMALL), 1e-4, range(3))}
    assert found["q_MK"] == pytest.approx(0.0, abs=1e-3)
    assert found["v_NN"] == pytest.approx(1.0, abs=1e-3)


def test_a_start_that_is_no_multiple_is_no_scale_family() -> None:
    with pytest.raises(NotAScaleFamilyError, match="initial values of parameter q_MK are not proportional"):
        orders(Shifted(), defaults(PAIRS, **SMALL), 0.1, [0])
