"""The flawed solution of FIRST, and the propositions of Chiang & Cholak on confidence."""

import math
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.reproduction.chiang import confidence, flawed_first
from attnsweep.reproduction.chiang.encoders import exact_first

QUIET = Console(quiet=True)


@pytest.mark.slow
def test_the_flawed_solution_fails_where_its_strength_says(tmp_path: Path) -> None:
    found = flawed_first.reproduce(tmp_path, QUIET, (4.5, 20.5), (5, 300), 200)
    assert [row.agrees for row in found.rows] == [True] * 5
    assert [row.ours for row in found.rows][::2] == [4, 20, 2]
    assert 0.5 < float(found.rows[1].ours) < float(found.rows[3].ours) < 1.0
    assert all(row.low is not None for row in found.rows[1:4:2])
    assert {path.name for path in found.figures} == {"chiang-flawed-first.png", "chiang-flawed-first.svg"}


@pytest.mark.slow
def test_a_solution_that_does_not_fail_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flawed_first, "flawed_first", exact_first)
    found = flawed_first.reproduce(tmp_path, QUIET, (4.5,), (5, 40), 50)
    assert [row.agrees for row in found.rows] == [False, False, True]


def test_cross_entropies_are_as_low_as_wished() -> None:
    found = confidence.reproduce(Path(), QUIET, {"first": (1, 30, 1000), "parity": (2, 9)}, 10)
    assert len(found.rows) == 3 * 2 + 4
    assert all(row.agrees for row in found.rows)
    by_name = {row.name: float(row.ours) for row in found.rows}
    most = by_name["Proposition 3, FIRST: most bits at any length"]
    assert most == pytest.approx(math.log2(1 + math.exp(-1001 / (2 * 2001))), rel=0.02)


def test_a_cross_entropy_that_is_not_reached_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confidence, "_EXACT", {"first": exact_first})
    monkeypatch.setattr(confidence, "with_extra_layer", lambda plain, *_: plain)
    found = confidence.reproduce(Path(), QUIET, {"first": (1, 30)}, 10)
    assert [row.agrees for row in found.rows[:3]] == [False] * 3
