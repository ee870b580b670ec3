"""Differences find the slope of smooth functions, and say so where a kink or rounding hides it."""

import math

import pytest

from attnsweep.workloads.gradients.check import slope


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_the_slope_of_a_smooth_function(scale: float) -> None:
    found = slope(lambda x: math.exp(x) * math.sin(3 * x + 1), 1.0, scale)
    assert found.value == pytest.approx(math.sin(1) + 3 * math.cos(1), abs=1e-10)
    assert found.gap < 1e-8


def test_smaller_steps_get_past_a_kink_nearby() -> None:
    found = slope(lambda x: x + 5 * max(0.0, x - 1e-4), 1.0, 1.0)
    assert found.value == pytest.approx(1.0, abs=1e-10)
    assert found.gap < 1e-9


@pytest.mark.parametrize("kink", [0.0, 1e-13])
def test_a_kink_at_the_point_is_seen_although_all_slopes_agree(kink: float) -> None:
    found = slope(lambda x: 2 * x + abs(x - kink), 1.0, 1.0)
    assert found.gap == pytest.approx(1.0, rel=1e-3)
    assert found.gap > found.rounding


def test_a_slope_below_the_rounding_of_the_function_is_called_so() -> None:
    found = slope(lambda x: 1.0 + 1e-14 * math.sin(x), 1.0, 1e-14)
    assert found.gap < found.rounding
