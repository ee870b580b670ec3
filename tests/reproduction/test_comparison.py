"""Rows of a reproduction: estimates with intervals, on screen and as JSON."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from attnsweep.reproduction.comparison import ComparedValue, Comparison, write_comparison
from attnsweep.reproduction.medians import median_difference_row, median_row

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
    COMPARISON.print(Console(file=screen, width=100))
    lines = [" ".join(line.split()) for line in screen.getvalue().splitlines()]
    assert "rate 0.5 0.25 [0.2, 0.3] differs" in lines
    assert "claim [a] falls falls agrees" in lines
    assert "new - 1" in lines
    assert "zero 2" in lines
    assert "- at another size" in lines


def test_its_json_is_rows(tmp_path: Path) -> None:
    write_comparison(COMPARISON, tmp_path / "new", "table-1")
    content = json.loads((tmp_path / "new" / "table-1.json").read_text())
    assert content["rows"][0] == {
        "name": "rate", "published": 0.5, "ours": 0.25, "low": 0.2, "high": 0.3, "agrees": False,
    }  # fmt: skip
    assert content["tables"] == [{"title": "families", "rows": [["family", "index"], ["zero", "2"]]}]


def test_a_median_agrees_only_if_its_whole_interval_does() -> None:
    values = np.arange(1.0, 21.0)
    row = median_row("m", values.tolist(), published="above 6", agrees_above=6.0)
    # Order statistics 6 and 15 of 20 cover the median with probability 0.9586.
    assert (row.ours, row.low, row.high) == (10.5, 6.0, 15.0)
    assert row.agrees is False
    assert median_row("m", values.tolist(), published="above 5", agrees_above=5.0).agrees is True


def test_the_interval_of_a_median_covers_it() -> None:
    draws = np.random.default_rng(0).exponential(size=(400, 20))
    rows = [median_row("m", draw.tolist(), published=None) for draw in draws]
    covered = np.mean([row.low <= np.log(2) <= row.high for row in rows])  # type: ignore[operator]
    assert 0.93 < covered < 0.99


def test_a_difference_agrees_if_it_is_surely_above_zero() -> None:
    low, high = np.random.default_rng(1).normal([[0.0], [3.0]], size=(2, 20))
    claim = median_difference_row("d", high.tolist(), low.tolist(), published="higher")
    assert claim.agrees is True
    assert claim.ours == pytest.approx(np.median(high) - np.median(low))
    assert median_difference_row("d", low.tolist(), high.tolist(), published="higher").agrees is False
    assert median_difference_row("d", low.tolist(), low.tolist(), published="higher").agrees is False
