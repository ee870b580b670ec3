"""Bins: coarse ones, and those that shrink as trials grow in number."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from attnsweep.orchestrator.analysis.rates.bins import Bins, cell_bins, coarse_bins, equal_bins, fine_bins
from attnsweep.search_spaces import Categorical, Float, Int
from attnsweep.search_spaces.dimensions import Varied

DECADES = Float(low=1e-4, high=10.0, log=True)


def _evenly(dimension: Float | Int, n: int) -> list[float]:
    space = np.geomspace if dimension.log else np.linspace
    return [float(value) for value in space(dimension.low, dimension.high, n)]


def _labels(bins: Bins) -> list[str]:
    return [label for label, _, _ in bins.ranges()]


def _sizes(bins: Bins, values: Sequence[object]) -> list[int]:
    return [int(each) for each in np.bincount(bins.place(values), minlength=len(bins))]


@pytest.mark.parametrize(
    ("n_trials", "n_bins", "n_cells"), [(128, 5, 5), (1100, 10, 5), (6250, 10, 10), (62_500, 20, 20)]
)
def test_more_trials_have_finer_bins(n_trials: int, n_bins: int, n_cells: int) -> None:
    """The table of docs/analysis.md."""
    values = _evenly(DECADES, n_trials)
    assert (len(fine_bins(DECADES, values)), len(cell_bins(DECADES, values))) == (n_bins, n_cells)
    assert len(coarse_bins(DECADES, values)) == 5


def test_bins_end_where_the_range_does() -> None:
    """Also where that cuts a decade."""
    assert _labels(coarse_bins(Float(low=0.01, high=0.5, log=True))) == ["1e-2..1e-1", "1e-1..5e-1"]
    assert _labels(coarse_bins(Int(low=2, high=300, log=True))) == ["2..9", "10..99", "100..300"]
    dimension = Float(low=2e-4, high=3.0, log=True)
    values = _evenly(dimension, 2000)
    bins = fine_bins(dimension, values)
    assert _labels(bins)[:3] == ["2e-4..4.47e-4", "4.47e-4..1e-3", "1e-3..3.16e-3"]
    assert _labels(bins)[-1] == "1.73e0..3e0"
    ends = [(low, high) for _, low, high in bins.ranges()]
    assert (ends[0][0], ends[-1][1]) == (2e-4, 3.0)
    assert all(high == low for (_, high), (low, _) in itertools.pairwise(ends))
    assert sum(_sizes(bins, values)) == 2000
    assert bins.place([1e-3, 10**-2.5, 3.0]).tolist() == [2, 3, len(bins) - 1]


@pytest.mark.parametrize(
    ("dimension", "values", "labels"),
    [
        (Int(low=2, high=8), [2, 3, 4, 5, 6, 7, 8] * 300, ["2", "3", "4", "5", "6", "7", "8"]),
        (Int(low=1, high=3, log=True), [1, 2, 3] * 700, ["1", "2", "3"]),
        (Float(low=0.0, high=1.0), [0.1, 0.5, 0.9] * 700, ["0..0.2", "0.2..0.4", "0.4..0.6", "0.6..0.8", "0.8..1"]),
        (Float(low=0.3, high=0.3), [0.3] * 3000, ["0.3..0.3"]),
        (Float(low=1e-4, high=1e-4, log=True), [1e-4] * 3000, ["1e-4..1e-4"]),
        (Categorical(choices=("a", "b")), ["a", "b"] * 3000, ["a", "b"]),
    ],
)
def test_bins_are_no_more_than_values(dimension: Varied, values: list[object], labels: list[str]) -> None:
    bins = fine_bins(dimension, values)
    assert _labels(bins) == labels
    assert sum(_sizes(bins, values)) == len(values)


def test_equal_bins_are_as_many_as_asked() -> None:
    values = _evenly(log := Float(low=0.01, high=0.5, log=True), 60)
    assert _sizes(equal_bins(6, fine_bins)(log, values), values) == [10] * 6
    assert _labels(equal_bins(6, fine_bins)(Int(low=1, high=4), [1, 4])) == ["1", "2", "3", "4"]
