"""The share of an outcome that states decide: planted shares are found, and the interval covers them."""

import numpy as np
import pytest
from numpy.typing import NDArray

from attnsweep.reproduction.studies.fork_decided import Decided, share_decided


def _continued(rng: np.random.Generator, share: float, rate: float, rows: int, n: int) -> Decided:
    """Trainings whose committors have this rate as their mean, and of whose outcome this share is decided."""
    q: NDArray[np.float64]
    if share in (0, 1):
        q = np.full(rows, rate) if share == 0 else (rng.random(rows) < rate).astype(np.float64)
    else:
        strength = 1 / share - 1
        q = rng.beta(rate * strength, (1 - rate) * strength, rows)
    return share_decided(rng.binomial(n, q).tolist(), [n] * rows)


def test_all_and_nothing_and_half_are_found() -> None:
    assert share_decided([12, 0] * 10, [12] * 20).share == 1
    assert share_decided([6] * 20, [12] * 20).share == 0
    # Half of the trainings are decided, on either side, and half are open.
    half = share_decided([0] * 5 + [24] * 5 + [12] * 10, [24] * 20)
    assert half.share == pytest.approx(0.5, abs=0.03)
    assert 0.2 < half.low < 0.5 < half.high < 0.8
    assert half.label == f"{half.share:.2f} [{half.low:.2f}, {half.high:.2f}]"


def test_few_decided_trainings_do_not_show_that_all_are() -> None:
    found = share_decided([16, 0, 16, 0, 16, 0], [16] * 6)
    assert found.high == 1
    assert found.low < 0.7


def test_it_does_not_depend_on_the_side_of_the_outcome_nor_on_equal_numbers_of_continuations() -> None:
    k, n = [3, 0, 9, 12, 1], [12, 8, 12, 16, 6]
    one, other = share_decided(k, n), share_decided([n - k for n, k in zip(n, k, strict=True)], n)
    assert one.share == pytest.approx(other.share)
    assert (one.low, one.high) == pytest.approx((other.low, other.high))


@pytest.mark.parametrize("k", [0, 8])
def test_an_outcome_that_all_or_none_have_is_not_decided_by_anything(k: int) -> None:
    assert share_decided([k] * 4, [8] * 4) == Decided(None, 0.0, 1.0)


@pytest.mark.simulation
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize(("rows", "n", "rate"), [(12, 12, 0.5), (24, 24, 0.5), (24, 24, 0.2)])
def test_the_interval_covers_a_planted_share(share: float, rows: int, n: int, rate: float) -> None:
    rng = np.random.default_rng(3)
    found = [_continued(rng, share, rate, rows, n) for _ in range(200)]
    assert np.mean([each.low <= share <= each.high for each in found]) >= 0.91
