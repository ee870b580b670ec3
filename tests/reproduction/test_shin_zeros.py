"""`attnsweep reproduce shin-zeros`: the search finds the families that theory names; its tables and figures."""

from pathlib import Path

import pytest
import torch

from attnsweep.reproduction.comparison import Comparison, save_figure
from attnsweep.reproduction.shin import zeros
from attnsweep.reproduction.shin.stationary import (
    EquationCheck,
    family_of_categories_only,
    family_of_positions_only,
    find_stationary_points,
)
from attnsweep.reproduction.shin.zeros import (
    FAMILIES,
    FoundPoints,
    find_points,
    stationary_points_figure,
    valley_figure,
)
from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.outcomes import reference_levels
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from tests.workloads.diagnostics.lanes import system_lanes


@pytest.mark.scale
@pytest.mark.slow
def test_stationary_points_of_positions_only() -> None:
    system = PositionsOnly(3, 4, softmax=False)
    found = find_stationary_points(*system_lanes(system, 60, sigma=1.2))
    family = family_of_positions_only(found, system.double().reference_levels())
    index = {"solution": 0, "centred_shift": 1, "mean": 1, "zero": 2}
    seen = {(str(name), int(i)) for name, i in zip(family[found.converged], found.index[found.converged], strict=True)}
    assert seen == set(index.items())
    assert found.converged.sum() > 45


@pytest.mark.slow
def test_stationary_points_of_categories_only() -> None:
    system = CategoriesOnly(3, 4, softmax=False)
    objective, start = system_lanes(system, 60, sigma=1.5)
    found = find_stationary_points(objective, start)
    target = objective.buffers["target_NN"]
    levels = torch.vmap(reference_levels)(target) | {"marginal": target.var(dim=1, correction=0).mean(1)}
    family = family_of_categories_only(found, levels)
    index = {"solution": {0}, "marginal": {1}, "zero": {3}, "zero_row_sums": {1, 2}, "zero_diagonal": {1, 2}}
    seen = {(str(name), int(i)) for name, i in zip(family[found.converged], found.index[found.converged], strict=True)}
    assert {name for name, _ in seen} == set(index)
    assert all(i in index[name] for name, i in seen)
    assert found.converged.sum() > 45


pytestmark = pytest.mark.slow

CHECKS = [
    EquationCheck(equation="1", subject="a", statement="a = a", printed_error=1.0, right_error=0.0),
    EquationCheck(equation="2", subject="b", statement="b = b", printed_error=0.0, right_error=0.0),
    EquationCheck(equation="3", subject="c", statement="c = c", printed_error=None, right_error=0.0),
    EquationCheck(equation="4", subject="d", statement="d = d", printed_error=None, right_error=float("nan")),
]


@pytest.fixture(scope="module")
def points() -> dict[str, FoundPoints]:
    return {system: find_points(system, 10, sizes=((2, 3), (3, 4))) for system in FAMILIES}


def _compared(points: dict[str, FoundPoints]) -> Comparison:
    return zeros.compare({"P": CHECKS, "C": []}, points, [])


def _rows(points: dict[str, FoundPoints]) -> dict[str, tuple[float | str, bool | None]]:
    return {row.name: (row.ours, row.agrees) for row in _compared(points).rows}


@pytest.mark.scale
def test_equations_are_judged_by_their_errors(points: dict[str, FoundPoints]) -> None:
    rows = _rows(points)
    assert rows["P 1: a"] == ("misprinted", False)
    assert rows["P 2: b"] == ("holds", True)
    assert rows["P 3: c"] == ("ours holds", None)
    assert rows["P 4: d"] == ("refuted", False)
    table = dict(_compared(points).tables)["System P, equation by equation"]
    assert list(table[1]) == ["1", "a = a", "misprinted", "1.0e+00", "0.0e+00"]
    assert table[4][-1] == "nan"


@pytest.mark.scale
def test_every_point_found_is_of_a_family_with_its_index(points: dict[str, FoundPoints]) -> None:
    rows = _rows(points)
    assert rows["P points of no known family"] == ("0 of 20 solves", True)
    assert rows["C points of no known family"] == ("0 of 20 solves", True)
    for system, families in FAMILIES.items():
        for family in families:
            assert set(points[system].index[points[system].family == family.name]) <= set(family.indices)


def test_another_index_differs(points: dict[str, FoundPoints]) -> None:
    of = points["P"]
    wrong = FoundPoints(of.family, of.index + (of.family == "mean"), of.level, of.size)
    ours, agrees = _rows(points | {"P": wrong})["P mean: Hessian index"]
    assert str(ours).startswith("2 at ")
    assert agrees is False


@pytest.mark.scale
def test_figures_are_written(points: dict[str, FoundPoints], tmp_path: Path) -> None:
    figures = {"points": stationary_points_figure(points), "valley": valley_figure(n_descents=4, n_steps=300)}
    for name, figure in figures.items():
        assert all(path.stat().st_size > 5000 for path in save_figure(figure, tmp_path, name))
