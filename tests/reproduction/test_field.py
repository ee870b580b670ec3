"""What the field's problems are compared by: powers of steps, closed forms, stages, plateaus."""

import math
from pathlib import Path

import numpy as np
import pytest

from attnsweep.reproduction.field import abrupt_learning, histogram, in_context_regression, markov_chains
from attnsweep.reproduction.field.markov_chains import Stages
from attnsweep.reproduction.field.steps_to_learn import Cell, per_percent, power
from attnsweep.reproduction.trained import trained
from attnsweep.search_spaces import Categorical
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.field.in_context_regression import IN_CONTEXT_REGRESSION
from attnsweep.workloads.parameters import Value
from tests.orchestrator.trained_sweep import trained_sweep


def _cell(fraction: float, steps: np.ndarray) -> Cell:
    return Cell(1.0, fraction, 1000, steps, steps)


def test_the_power_of_steps_is_found_with_its_interval() -> None:
    random, covered = np.random.default_rng(0), 0
    sizes = np.repeat([10, 20, 40], 64)
    for _ in range(1000):
        _, low, high = power(sizes, sizes**1.5 * random.lognormal(0, 0.3, len(sizes)))
        covered += low <= 1.5 <= high
    assert covered >= 930


def test_steps_per_percent_of_data() -> None:
    random, truths = np.random.default_rng(1), 0
    for _ in range(60):
        few, many = (random.lognormal(math.log(median), 0.4, 64) for median in (100 * 1.04**10, 100))
        found, low, high = per_percent(_cell(0.6, few), _cell(0.7, many))
        truths += low <= 1.04 <= high
        assert found == pytest.approx(1.04, abs=0.03)
    assert truths >= 52


def test_a_median_that_is_not_reached_is_infinite() -> None:
    few, many = np.array([500.0, math.inf, math.inf]), np.full(3, 100.0)
    found, _, high = per_percent(_cell(0.6, few), _cell(0.7, many))
    assert (found, high) == (math.inf, math.inf)
    assert math.isnan(per_percent(_cell(0.6, few), _cell(0.7, few))[0])


def test_merged_attention_follows_its_closed_form() -> None:
    values: dict[str, Value] = {"kq": "merged", "covariance": "white", "init_sigma": 1e-3, "learning_rate": 0.05}
    white = trained(IN_CONTEXT_REGRESSION(), range(3), values | {"n_steps": 1000, "stop_when_solved": False})
    loss, expected = white.evidence.metrics["eval_loss"], in_context_regression.closed_form(white)
    assert np.abs(loss - expected).max() < 0.03  # Of finite steps.
    assert expected[:, -1].max() < 0.2 < 0.99 < expected[:, 0].min()


def test_a_median_is_given_where_most_got_there() -> None:
    slow, late = Stages(20.0, 300.0, True, True), Stages(30.0, float("inf"), False, False)
    never = Stages(float("inf"), 200.0, True, False)
    stages = {"any": [slow, slow, late], "doubly_stochastic": [never, never]}
    rows = {row.name: row for row in markov_chains.rows_of(stages, 3)}
    assert rows["3 states, any: unigrams before bigrams"].ours == 1.0
    assert rows["3 states, any: bigrams within n_steps"].ours == pytest.approx(2 / 3)
    assert "3 states, any: steps to bigrams" not in rows
    assert rows["3 states, doubly_stochastic: steps to bigrams"].ours == 200.0
    assert rows["3 states: steps to bigrams, doubly_stochastic over any"].ours == pytest.approx(2 / 3)
    assert rows["3 states, any: induction head in the second block, where bigrams came"].ours == 1.0


@pytest.mark.slow
def test_stages_are_read_from_events_and_roles(tmp_path: Path) -> None:
    small = {"n_context": 8, "batch_size": 4, "n_steps": 20}
    spec = load_sweep("markov_chains").fix(small).but(replicates=2, certified_share=0.0)
    found = markov_chains.stages_of(trained_sweep(tmp_path / "chains", spec, pack_size=4))
    assert {n: {name: len(each) for name, each in cells.items()} for n, cells in found.items()} == {
        n_states: {"any": 2, "doubly_stochastic": 2} for n_states in (2, 3)
    }


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
