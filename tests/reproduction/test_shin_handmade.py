"""`attnsweep reproduce shin-handmade`."""

from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.reproduction.comparison import Comparison
from attnsweep.reproduction.shin import handmade as shin_handmade
from attnsweep.reproduction.shin.solutions import SOLUTIONS


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return shin_handmade.reproduce(tmp_path_factory.mktemp("handmade"), Console(quiet=True))


def _agrees(comparison: Comparison) -> dict[str, bool | None]:
    return {row.name: row.agrees for row in comparison.rows}


@pytest.mark.slow
def test_which_printed_solutions_hold(comparison: Comparison) -> None:
    agrees = {name: each for name, each in _agrees(comparison).items() if "as printed, " in name}
    assert agrees == {
        "solution 1 as printed, signed q*": False,
        "solution 1 as printed, non-negative q*": False,
        "solution 2 as printed, signed q*": False,
        "solution 2 as printed, non-negative q*": True,
        "solution 3 as printed, signed q*": False,
        "solution 3 as printed, non-negative q*": True,
    }


@pytest.mark.slow
def test_what_the_printed_solutions_answer(comparison: Comparison) -> None:
    ours = {row.name: float(row.ours) for row in comparison.rows if " by" in row.name}
    assert len(ours) == 4
    assert max(ours.values()) < 1e-12


@pytest.mark.slow
def test_corrected_solutions_are_exact(comparison: Comparison) -> None:
    ((_, table),) = comparison.tables
    assert list(table[0][3:]) == ["corrected, q* signed", "corrected, q* non-negative"]
    assert len(table) == 1 + len(SOLUTIONS)
    assert all(float(cell) < 1e-12 for row in table[1:] for cell in row[3:])


def test_the_worked_example(comparison: Comparison) -> None:
    rows = [row for row in comparison.rows if "example" in row.name]
    assert [row.ours for row in rows] == ["(0, 13, 32, 22)"] * 3
    assert all(row.agrees for row in rows)


def test_the_figure_is_written(comparison: Comparison) -> None:
    assert [path.suffix for path in comparison.figures] == [".png", ".svg"]
    assert all(path.stat().st_size > 10_000 for path in comparison.figures)


def test_another_weight_of_the_linear_case_is_off() -> None:
    assert shin_handmade.linear_case_error(7) == 0.0
    assert shin_handmade.linear_case_error(7, factor=9.0) == 9.0


def test_broken_weights_differ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(SOLUTIONS, "solution_3", SOLUTIONS["solution_1"])
    agrees = _agrees(shin_handmade.compare(3, []))
    assert agrees["solution 3 as printed, non-negative q*"] is False
