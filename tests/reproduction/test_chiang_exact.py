"""The figures of Chiang & Cholak on transformers with hand-set weights."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from attnsweep.reproduction.chiang import fig2 as chiang_fig2
from attnsweep.reproduction.chiang import fig3 as chiang_fig3
from attnsweep.reproduction.chiang.encoders import exact_first, exact_parity, flawed_first
from attnsweep.reproduction.chiang.exact import answers
from attnsweep.reproduction.chiang.fig3 import count_turns
from attnsweep.reproduction.comparison import Comparison

QUIET = Console(quiet=True)

LENGTHS = {"first": (1, 10, 300), "parity": (2, 9, 40)}


def _drawn(comparison: Comparison, name: str) -> dict[str, dict[str, object]]:
    assert [path.name for path in comparison.figures] == [f"{name}.png", f"{name}.svg"]
    assert all(path.stat().st_size > 10_000 for path in comparison.figures)
    return {row["name"]: row for row in json.loads(comparison.to_json())["rows"]}


def test_answers_are_those_of_the_closed_form() -> None:
    s = math.e / (math.e + 20) / 2
    found = answers(exact_first(), "first", 20, 50)
    assert found.mean_bits == pytest.approx(math.log2(1 + math.exp(-s)), abs=1e-12)
    assert found.accuracy == 1.0


def test_a_wrong_answer_is_seen() -> None:
    assert answers(flawed_first(0.1), "first", 50, 200).accuracy < 0.9
    assert answers(exact_parity(counting=0.5), "parity", 20, 100).accuracy < 0.9


def test_strings_by_positions_are_answered_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = answers(exact_parity(), "parity", 9, 20).bits_B
    monkeypatch.setattr("attnsweep.reproduction.chiang.exact._ROOM", 1000)
    np.testing.assert_allclose(answers(exact_parity(), "parity", 9, 20).bits_B, whole, rtol=1e-12)


@pytest.mark.slow
def test_figure_2_has_the_published_values(tmp_path: Path) -> None:
    rows = _drawn(chiang_fig2.reproduce(tmp_path, QUIET, LENGTHS, 200), "chiang-fig2")
    for name, published in (("FIRST, no LN, n = 100: bits", 0.9947), ("FIRST, LN 1e-5, n = 100: bits", 0.1360)):
        assert rows[name]["published"] == published
        assert rows[name]["ours"] == pytest.approx(published, abs=1e-3)
        assert rows[name]["agrees"] is True
    assert rows["FIRST: lowest accuracy at any n"]["ours"] == 1.0
    assert rows["PARITY, LN 0: largest less smallest, bits"]["agrees"] is True
    assert rows["PARITY, no LN: bits at n = 40"]["agrees"] is True


@pytest.mark.slow
def test_figure_2_says_where_a_claim_does_not_hold(tmp_path: Path) -> None:
    rows = _drawn(chiang_fig2.reproduce(tmp_path, QUIET, {"first": (1, 2)}, 50), "chiang-fig2")
    assert rows["FIRST, no LN: bits at n = 2"]["agrees"] is False


@pytest.mark.scale
@pytest.mark.slow
def test_figure_3_oscillates_away_from_1_and_not_at_it(tmp_path: Path) -> None:
    rows = _drawn(chiang_fig3.reproduce(tmp_path, QUIET, 40, np.linspace(0.5, 1.5, 81), 100), "chiang-fig3")
    assert rows["weight 1: accuracy"]["ours"] == 1.0
    assert rows["turns of the bits"]["agrees"] is True
    near = _drawn(chiang_fig3.reproduce(tmp_path, QUIET, 40, np.linspace(0.999, 1.001, 5), 100), "chiang-fig3")
    assert near["turns of the bits"]["ours"] == 0.0
    assert near["turns of the bits"]["agrees"] is False
    assert near["accuracy 1 at all weights from, to"]["ours"] == "0.999, 1.001"


def test_turns_smaller_than_asked_for_do_not_count() -> None:
    assert count_turns([0.0, 1.0, 0.0, 1.0], 0.5) == 2
    assert count_turns([0.0, 1.0, 0.8, 1.0, 0.0], 0.5) == 1
    assert count_turns([0.0, 0.1, 0.2, 0.3, 0.9], 0.5) == 0
