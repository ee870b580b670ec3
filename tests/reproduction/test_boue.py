"""`attnsweep reproduce boue-counts` and `boue-gradients`."""

from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.reproduction.boue import counts, gradients
from attnsweep.reproduction.boue.gradients import (
    cache_error,
    epsilon_added_to_the_deviation,
    low_rank_without_the_weight,
    multiplying_mask,
)
from attnsweep.reproduction.comparison import Comparison

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return counts.reproduce(tmp_path_factory.mktemp("counts"), QUIET)


@pytest.mark.slow
def test_the_published_numbers_of_parameters(counted: Comparison) -> None:
    ours = {row.name: row.ours for row in counted.rows}
    assert ours["one block, d = 768"] == "7,087,872"
    assert ours["model with 1 block"] == "85,120,849"
    assert ours["model with 12 blocks"] == "163,087,441"
    assert ours["head"] == "38,647,633"
    assert ours["12 blocks, tied"] == "124,439,808"
    assert ours["low-rank update of the head, r = 16"] == "816,400"
    assert ours["low-rank updates of all layers, r = 16"] == "3,470,608"


@pytest.mark.slow
def test_all_rows_agree_but_the_one_that_need_not(counted: Comparison) -> None:
    assert {row.name for row in counted.rows if not row.agrees} == {"the same with the causal mask"}


def test_every_formula_of_the_tables_holds_but_the_claim_on_b_v(tmp_path: Path) -> None:
    rows = gradients.reproduce(tmp_path, QUIET).rows
    assert len(rows) == 31
    assert [row.name for row in rows if not row.agrees] == ["b_v's gradient less w_3 times b_3's"]


def test_printed_forms_fail() -> None:
    future, of_key_bias = multiplying_mask()
    assert future > 0.2
    assert of_key_bias > 1e-3
    assert low_rank_without_the_weight() > 0.5
    assert cache_error(1.0) > 0.01
    assert 1e-7 < epsilon_added_to_the_deviation(1e-5) < epsilon_added_to_the_deviation(0.3)
