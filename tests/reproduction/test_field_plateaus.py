"""Abrupt learning and the histogram: what their tables and rows are read from, on tiny sweeps."""

from pathlib import Path

import pytest

from attnsweep.reproduction.field import abrupt_learning, histogram
from attnsweep.search_spaces import Categorical
from attnsweep.search_spaces.loading import load_sweep
from tests.orchestrator.trained_sweep import trained_sweep

CELL = histogram.Cell


@pytest.mark.slow
def test_a_plateau_is_read_from_events_and_curves(tmp_path: Path) -> None:
    small = {"d_model": 8, "length": 4, "n_numbers": 3, "batch_size": 8, "n_steps": 40}
    spec = load_sweep("abrupt_learning").fix(small).but(replicates=2, certified_share=0.0)
    sweep = trained_sweep(tmp_path / "abrupt", spec, pack_size=10)
    found = abrupt_learning.plateaus_of(sweep, "optimal_scale")
    assert [*found] == [0.2, 0.5, 1.0, 2.5, 10.0]
    for each in found.values():
        assert each.length.shape == (2,)
        assert (each.length[~each.is_left] == 40).all()
    comparison = abrupt_learning.compare(sweep, tmp_path)
    assert len({row.name for row in comparison.rows}) == len(comparison.rows)
    comparison.to_json()


@pytest.mark.slow
def test_the_map_of_the_histogram_is_read_from_outcomes(tmp_path: Path) -> None:
    spec = load_sweep("histogram").fix({"n_steps": 2}).but(replicates=2, trials=8, certified_share=0.0)
    spec = spec.but(space={**spec.space, "d_model": Categorical((3, 6)), "d_ffn": Categorical((3, 6))})
    comparison = histogram.compare(trained_sweep(tmp_path / "histogram", spec, pack_size=16), tmp_path)
    assert [row.ours for row in comparison.rows] == [0.0] * 8
    assert [len(table) for _, table in comparison.tables] == [3, 3]
    comparison.to_json()


def test_quarters_of_the_plane_are_divided_where_a_width_is_the_number_of_letters() -> None:
    cells = {
        ("lin", d, p): CELL(n=10, n_solved=10 if d >= 6 and p >= 6 else 0, accuracy=0.5)
        for d in (3, 6)
        for p in (3, 6, 9)
    }
    rows = {row.name: row for row in histogram.rows_of(cells, 6)}
    assert [row.ours for row in rows.values()] == [1.0, 0.0, 0.0, 0.0]
    assert rows["lin, d >= T, p >= T: solved"].agrees
    assert [*rows][1:] == [f"lin, d {d} T, p {p} T: solved" for d, p in (("<", ">="), (">=", "<"), ("<", "<"))]
