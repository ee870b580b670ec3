"""Estimates: their intervals cover, a claim agrees only if the whole interval does; on screen and as JSON."""

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import ESTIMATORS, estimate_row


def _row(estimator: str, sample: Any, **record: Any) -> ComparedValue:
    return estimate_row("a", estimator, {"sample": sample, **record})


def test_the_interval_of_a_mean_covers_it() -> None:
    draws = np.random.default_rng(0).normal(3.0, 2.0, size=(2000, 8))
    intervals = [ESTIMATORS["mean"]({"sample": draw}) for draw in draws]
    assert 0.935 < np.mean([low <= 3.0 <= high for _, low, high in intervals]) < 0.965


def test_the_interval_of_a_difference_is_welchs() -> None:
    values, others = [1.0, 2.0, 3.0, 4.0], [0.0, 4.0, 8.0]
    theirs = stats.ttest_ind(values, others, equal_var=False).confidence_interval()
    row = _row("mean", values, other=others)
    assert (row.ours, row.low, row.high) == pytest.approx((-1.5, theirs.low, theirs.high))


def test_equal_values_and_lone_ones() -> None:
    assert ESTIMATORS["mean"]({"sample": [1.0, 1.0]}) == (1.0, 1.0, 1.0)
    lone = _row("mean", [0.5], within=(0.0, 1.0))
    assert (lone.low, lone.high, lone.agrees) == (None, None, False)


def test_a_claim_agrees_only_if_the_whole_interval_does() -> None:
    values = [0.4, 0.5, 0.6]
    assert _row("mean", values, within=(0.0, 1.0)).agrees is True
    assert _row("mean", values, within=(0.45, 1.0)).agrees is False
    assert _row("mean", values, within=(0.45, 1.0), undecided=True).agrees is None
    assert _row("mean", values).agrees is None
    assert _row("mean", [2.0, 2.1], other=[1.0, 1.1], above=0).agrees is True
    assert _row("mean", [1.0, 1.1], other=[1.0, 1.1], above=0).agrees is False
    assert _row("share", [True] * 20, below=1).agrees is False
    assert _row("share", [True] * 20, within=(0.8, 1.0)).agrees is True


def test_a_ratio_partly_inside_is_undecided() -> None:
    more, less = [2.0, 3.0, 4.0], [1.0, 1.5, 2.0]
    assert _row("ratio", more, other=less, within=(0.0, 0.01)).agrees is False
    assert _row("ratio", more, other=less, within=(1.5, 99.0)).agrees is None
    assert _row("ratio", more, other=less).ours == pytest.approx(2.0)


def test_a_median_has_an_interval_from_order_statistics() -> None:
    row = _row("median", np.arange(1.0, 21.0), above=6)
    # Order statistics 6 and 15 of 20 cover the median with probability 0.9586.
    assert (row.ours, row.low, row.high) == (10.5, 6.0, 15.0)
    assert row.agrees is False
    low, high = np.random.default_rng(1).normal([[0.0], [3.0]], size=(2, 20))
    assert _row("median_difference", high, other=low, above=0).agrees is True
    assert _row("median_difference", low, other=low, above=0).agrees is False


def test_the_power_of_steps_is_found_with_its_interval() -> None:
    random, sizes = np.random.default_rng(0), np.repeat([10, 20, 40], 64)
    covered = 0
    for _ in range(1000):
        _, low, high = ESTIMATORS["power"]({"sample": sizes**1.5 * random.lognormal(0, 0.3, 192), "other": sizes})
        covered += low <= 1.5 <= high
    assert covered >= 930


def test_a_root_of_a_ratio_of_medians() -> None:
    random, truths = np.random.default_rng(1), 0
    for _ in range(60):
        few, many = (random.lognormal(math.log(median), 0.4, 64) for median in (100 * 1.04**10, 100))
        found, low, high = ESTIMATORS["median_ratio"]({"sample": few, "other": many, "root": 10})
        truths += low <= 1.04 <= high
        assert found == pytest.approx(1.04, abs=0.03)
    assert truths >= 52
    never = [500.0, math.inf, math.inf]
    assert str(_row("median_ratio", never, other=[100.0] * 3, root=10).ours).startswith("above")
    assert _row("median_ratio", [math.inf] * 3, other=[math.inf] * 3, root=10).ours == "not known"


@pytest.mark.parametrize("n_seeds", [20, 100])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.98, 1.0])
def test_it_covers_the_mean_of_accuracies_near_one_half_or_1(share: float, n_seeds: int) -> None:
    rng = np.random.default_rng(0)
    learned = rng.random((200, n_seeds)) < share
    n_wrong = np.where(learned, rng.binomial(100, 0.003, learned.shape), rng.binomial(100, 0.5, learned.shape))
    truth = share * 0.997 + (1 - share) * 0.5
    found = [ESTIMATORS["bounded_mean"]({"sample": 1 - wrong / 100, "ends": (0, 1)}) for wrong in n_wrong]
    assert np.mean([low <= truth <= high for _, low, high in found]) >= 0.95


@pytest.mark.parametrize("n_with", [0, 7, 20])
def test_of_zeros_and_ones_it_is_clopper_and_pearsons(n_with: int) -> None:
    row = _row("bounded_mean", [1.0] * n_with + [0.0] * (20 - n_with), ends=(0, 1))
    exact = stats.binomtest(n_with, 20).proportion_ci(method="exact")
    assert (row.ours, row.low, row.high) == pytest.approx((n_with / 20, exact.low, exact.high), abs=0.01)


def test_a_difference_of_bounded_means() -> None:
    mixed, wrong = [1.0] * 60 + [0.5] * 40, [0.5] * 100
    found, low, high = ESTIMATORS["bounded_difference"]({"sample": mixed, "other": wrong, "ends": (0, 1)})
    assert found == pytest.approx(0.3)
    assert 0.2 < low < 0.26
    assert 0.34 < high < 0.4


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
    assert "zero 2" in lines
    assert "- at another size" in lines


def test_its_json_is_rows(tmp_path: Path) -> None:
    COMPARISON.write(tmp_path / "new" / "table-1.json")
    content = json.loads((tmp_path / "new" / "table-1.json").read_text())
    assert content["rows"][0] == {
        "name": "rate", "published": 0.5, "ours": 0.25, "low": 0.2, "high": 0.3, "agrees": False,
    }  # fmt: skip
    assert content["tables"] == [{"title": "families", "rows": [["family", "index"], ["zero", "2"]]}]
