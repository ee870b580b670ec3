"""What the field's problems are compared by: powers of steps, and steps per percent of data."""

import math

import numpy as np
import pytest

from attnsweep.reproduction.field.modular_addition import Cell, per_percent
from attnsweep.reproduction.field.sparse_parity import power


def _cell(fraction: float, steps: np.ndarray) -> Cell:
    return Cell(1.0, fraction, 1000, steps, steps)


def test_the_power_of_steps_is_found_with_its_interval() -> None:
    random, covered = np.random.default_rng(0), 0
    sizes = np.repeat([10, 20, 40], 64)
    for _ in range(1000):
        _, low, high = power(sizes, sizes**1.5 * random.lognormal(0, 0.3, len(sizes)))
        covered += low <= 1.5 <= high
    assert covered >= 930


def test_steps_per_percent_of_data() -> None:
    random, truths = np.random.default_rng(1), 0
    for _ in range(60):
        few, many = (random.lognormal(math.log(median), 0.4, 64) for median in (100 * 1.04**10, 100))
        found, low, high = per_percent(_cell(0.6, few), _cell(0.7, many))
        truths += low <= 1.04 <= high
        assert found == pytest.approx(1.04, abs=0.03)
    assert truths >= 52


def test_a_median_that_is_not_reached_is_infinite() -> None:
    few, many = np.array([500.0, math.inf, math.inf]), np.full(3, 100.0)
    found, _, high = per_percent(_cell(0.6, few), _cell(0.7, many))
    assert (found, high) == (math.inf, math.inf)
    assert math.isnan(per_percent(_cell(0.6, few), _cell(0.7, few))[0])
