"""Rows of estimates: their intervals cover, a claim agrees only if the whole interval does; on screen and as JSON."""

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import (
    bounded_difference_row,
    bounded_mean_intervals,
    bounded_mean_row,
    mean_difference_row,
    mean_interval,
    mean_row,
    median_difference_row,
    median_row,
    share_row,
)


def test_the_interval_of_a_mean_covers_it() -> None:
    draws = np.random.default_rng(0).normal(3.0, 2.0, size=(2000, 8))
    intervals = [mean_interval(draw.tolist()) for draw in draws]
    assert 0.935 < np.mean([low <= 3.0 <= high for _, low, high in intervals]) < 0.965


def test_the_interval_of_a_difference_is_welchs() -> None:
    values, others = [1.0, 2.0, 3.0, 4.0], [0.0, 4.0, 8.0]
    theirs = stats.ttest_ind(values, others, equal_var=False).confidence_interval()
    assert mean_interval(values, others) == pytest.approx((-1.5, theirs.low, theirs.high))


def test_equal_values_and_lone_ones() -> None:
    assert mean_interval([1.0, 1.0]) == (1.0, 1.0, 1.0)
    assert mean_interval([1.0]) == (1.0, -math.inf, math.inf)
    lone = mean_row("a", [0.5], agrees_within=(0.0, 1.0))
    assert (lone.low, lone.high, lone.agrees) == (None, None, False)


def test_a_claim_agrees_only_if_the_whole_interval_does() -> None:
    values = [0.4, 0.5, 0.6]
    assert mean_row("a", values, agrees_within=(0.0, 1.0)).agrees is True
    assert mean_row("a", values, agrees_within=(0.45, 1.0)).agrees is False
    assert mean_row("a", values).agrees is None
    assert mean_difference_row("a", [2.0, 2.1], [1.0, 1.1], published="more").agrees is True
    assert mean_difference_row("a", [1.0, 1.1], [1.0, 1.1], published="more").agrees is False


def test_a_share_of_seeds() -> None:
    row = share_row("a", 20, 20, published="all", agrees_within=(0.8, 1.0))
    assert row.ours == 1.0
    assert row.low == pytest.approx(0.839, abs=1e-3)
    assert row.agrees is True
    assert share_row("a", 17, 20, published="all", agrees_within=(0.8, 1.0)).agrees is False


def test_a_median_agrees_only_if_its_whole_interval_does() -> None:
    values = np.arange(1.0, 21.0)
    row = median_row("m", values.tolist(), published="above 6", agrees_above=6.0)
    # Order statistics 6 and 15 of 20 cover the median with probability 0.9586.
    assert (row.ours, row.low, row.high) == (10.5, 6.0, 15.0)
    assert row.agrees is False
    assert median_row("m", values.tolist(), published="above 5", agrees_above=5.0).agrees is True


@pytest.mark.slow
def test_the_interval_of_a_median_covers_it() -> None:
    draws = np.random.default_rng(0).exponential(size=(400, 20))
    rows = [median_row("m", draw.tolist(), published=None) for draw in draws]
    covered = np.mean([row.low <= np.log(2) <= row.high for row in rows])
    assert 0.93 < covered < 0.99


def test_a_difference_agrees_if_it_is_surely_above_zero() -> None:
    low, high = np.random.default_rng(1).normal([[0.0], [3.0]], size=(2, 20))
    claim = median_difference_row("d", high.tolist(), low.tolist(), published="higher")
    assert claim.agrees is True
    assert claim.ours == pytest.approx(np.median(high) - np.median(low))
    assert median_difference_row("d", low.tolist(), high.tolist(), published="higher").agrees is False
    assert median_difference_row("d", low.tolist(), low.tolist(), published="higher").agrees is False


ACCURACIES = (0.0, 1.0)


@pytest.mark.parametrize("n_seeds", [20, 100])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.98, 1.0])
def test_it_covers_the_mean_of_accuracies_near_one_half_or_1(share: float, n_seeds: int) -> None:
    rng = np.random.default_rng(0)
    learned = rng.random((200, n_seeds)) < share
    n_wrong = np.where(learned, rng.binomial(100, 0.003, learned.shape), rng.binomial(100, 0.5, learned.shape))
    truth = share * 0.997 + (1 - share) * 0.5
    _, low, high = bounded_mean_intervals(1 - n_wrong / 100, ACCURACIES)
    assert np.mean((low <= truth) & (truth <= high)) >= 0.95


@pytest.mark.parametrize("n_with", [0, 1, 7, 20])
def test_of_zeros_and_ones_it_is_clopper_and_pearsons(n_with: int) -> None:
    row = bounded_mean_row("a", [1.0] * n_with + [0.0] * (20 - n_with), ACCURACIES)
    exact = stats.binomtest(n_with, 20).proportion_ci(method="exact")
    assert (row.ours, row.low, row.high) == pytest.approx((n_with / 20, exact.low, exact.high), abs=0.01)


def test_equal_values_and_lone_ones_have_an_interval() -> None:
    equal, lone = bounded_mean_row("a", [1.0] * 100, ACCURACIES), bounded_mean_row("a", [0.5], ACCURACIES)
    assert equal.low == pytest.approx(0.963, abs=0.005)
    assert equal.high == 1.0
    assert lone.low == pytest.approx(0.0, abs=0.05)
    assert lone.high == pytest.approx(1.0, abs=0.05)


def test_a_difference_is_that_of_the_two_means() -> None:
    row = bounded_difference_row("a", [1.0] * 60 + [0.5] * 40, [0.5] * 100, ACCURACIES)
    assert row.ours == pytest.approx(0.3)
    assert row.low is not None
    assert row.high is not None
    assert 0.2 < row.low < 0.26
    assert 0.34 < row.high < 0.4
    swapped = bounded_difference_row("a", [0.5] * 100, [1.0] * 60 + [0.5] * 40, ACCURACIES)
    assert (swapped.low, swapped.high) == pytest.approx((-row.high, -row.low), abs=0.01)


COMPARISON = Comparison(
    title="a table",
    source="Author 2020, Table 1",
    rows=[
        ComparedValue(name="rate", published=0.5, ours=0.25, low=0.2, high=0.3, agrees=False),
        ComparedValue(name="claim [a]", published="falls", ours="falls", agrees=True),
        ComparedValue(name="new", published=None, ours=1.0),
    ],
    notes=["at another size"],
    tables=[("families", [["family", "index"], ["zero", "2"]])],
)


def test_the_table_has_ours_beside_the_published() -> None:
    screen = io.StringIO()
    # The command line's console, which shows texts literally: markup in them would be printed.
    COMPARISON.print(PlainConsole(file=screen, width=100))
    lines = [" ".join(line.split()) for line in screen.getvalue().splitlines()]
    assert "a table Author 2020, Table 1" in lines
    assert "rate 0.5 0.25 [0.2, 0.3] differs" in lines
    assert "claim [a] falls falls agrees" in lines
    assert "new - 1" in lines
    assert "zero 2" in lines
    assert "- at another size" in lines


def test_its_json_is_rows(tmp_path: Path) -> None:
    COMPARISON.write(tmp_path / "new" / "table-1.json")
    content = json.loads((tmp_path / "new" / "table-1.json").read_text())
    assert content["rows"][0] == {
        "name": "rate", "published": 0.5, "ours": 0.25, "low": 0.2, "high": 0.3, "agrees": False,
    }  # fmt: skip
    assert content["tables"] == [{"title": "families", "rows": [["family", "index"], ["zero", "2"]]}]
