"""The results of a sweep: best trials, Pareto fronts, JSON and Markdown."""

from pathlib import Path

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep import LossQuantile
from attnsweep.orchestrator.analysis.rates.intervals import NOTHING
from attnsweep.orchestrator.analysis.results import (
    Preferred,
    SweepResults,
    on_front,
    read_preferred,
    read_results,
    stuck_or_slow_sentence,
)
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.search_spaces import Sweep, measured
from tests.orchestrator.small_sweep import Rows, small_sweep, sweep_on_disk, trial_rows
from tests.present import present

SOLVED, STUCK = ["solved"] * 4, ["runaway"] * 4
OF_TWO = [measured.Rate("solved"), LossQuantile()]


def _results(path: Path, *trials: Rows, spec: Sweep | None = None) -> SweepResults:
    spec = spec or small_sweep("s")
    directory = sweep_on_disk(path / "sweep", spec, *trials)
    return Ledger(directory.place).ask(lambda connection: read_results(connection, spec))


def test_the_best_trial_follows_the_objective(tmp_path: Path) -> None:
    trials = [
        trial_rows(0, STUCK, eval_loss=0.1),
        trial_rows(1, SOLVED, eval_loss=0.9, param_init_sigma=0.5),
        trial_rows(2, SOLVED, eval_loss=0.4),
        trial_rows(3, ["solved"], eval_loss=0.0),
        trial_rows(4, ["failed"] * 4),
    ]
    spec = small_sweep("best")
    sweep_on_disk(tmp_path / "sweep", spec, *trials)
    with Ledger(tmp_path / "sweep").connect() as connection:
        fewest_stuck = present(read_preferred(connection, spec).best)
        assert (fewest_stuck["trial"], fewest_stuck["value"]) == (2, 0.0)
        least_loss = present(read_preferred(connection, spec.but(objective=LossQuantile())).best)
        assert (least_loss["trial"], least_loss["value"], least_loss["rate"].k) == (0, 0.1, 4)
        most_loss = present(read_preferred(connection, spec.but(objective=LossQuantile(direction="maximize"))).best)
        assert (most_loss["trial"], most_loss["parameters"]["init_sigma"]) == (1, 0.5)


def test_no_trial_is_called_best_among_equals_and_that_nothing_was_solved_is_said(tmp_path: Path) -> None:
    trials = [trial_rows(trial, STUCK, eval_loss=0.1 + trial) for trial in range(3)]
    sentences = [*_results(tmp_path, *trials).sentences()]
    assert "no training was solved" in sentences
    assert "3 trials are equally good: stuck_rate 1" in sentences
    assert not [each for each in sentences if each.startswith("best trial")]


def test_an_empty_ledger_has_a_summary(tmp_path: Path) -> None:
    summary = _results(tmp_path)
    assert (summary.n_trainings, summary.preferred.best, summary.stuck_rate) == (0, None, NOTHING)
    assert {row["n_trials"] for row in summary.stuck_rate_by} == {0}


def test_stuck_or_slow_compares_the_steps_taken_with_those_predicted(tmp_path: Path) -> None:
    predictions = {10: "stuck twenty times over", 70: "undecided", 200: "slow", None: "no law"}
    trials = [
        trial_rows(at, ["degenerate_zero", "runaway"], n_steps=100, predicted_escape_step=step)
        for at, step in enumerate(predictions)
    ]
    solved = trial_rows(9, ["solved"], n_steps=10, predicted_escape_step=20)
    found = present(_results(tmp_path, *trials, solved).stuck_or_slow)
    assert (found["stuck"], found["slow"], found["unknown"]) == (2, 1, 5)
    assert found["ratio"] == pytest.approx(100 / 70)
    assert "of 8 stuck trainings, 2 took at least 2 times" in stuck_or_slow_sentence(found)


points = st.integers(2, 3).flatmap(
    lambda n: st.lists(st.tuples(*[st.integers(0, 4).map(float)] * n), min_size=1, max_size=30)
)


@given(points, st.lists(st.booleans(), min_size=3, max_size=3))
def test_the_front_is_that_of_optunas_study(values: list[tuple[float, ...]], is_sought: list[bool]) -> None:
    signs = [-1.0 if each else 1.0 for each in is_sought[: len(values[0])]]
    study = optuna.create_study(directions=["maximize" if sign < 0 else "minimize" for sign in signs])
    study.add_trials([optuna.trial.create_trial(values=list(each)) for each in values])
    found = np.flatnonzero(on_front(np.array(values) * signs)).tolist()
    assert found == [each.number for each in study.best_trials]


def rows(trial: int, n_solved: int, n_stuck: int, loss: float) -> Rows:
    ends = [*["solved"] * n_solved, *["marginal"] * n_stuck, *["plateau"] * (4 - n_solved - n_stuck)]
    return trial_rows(trial, ends, eval_loss=loss, param_init_sigma=0.1 * trial + 0.1)


TRIALS = (rows(0, 4, 0, 0.9), rows(1, 2, 0, 0.1), rows(2, 1, 3, 0.01), rows(3, 1, 1, 0.8), rows(4, 4, 0, 0.9))
"""Fewer solved ones have the lower losses; trial 3 is worse than trial 1, and trial 4 is as good as trial 0."""


def preferred(path: Path, **changes: object) -> Preferred:
    spec = small_sweep("s").but(**changes)
    directory = sweep_on_disk(path, spec, *TRIALS, rows(5, 4, 0, 0.0)[:3])
    return Ledger(directory.place).ask(lambda connection: read_preferred(connection, spec))


def test_trials_that_no_other_beats_are_on_the_front_the_best_in_the_first_objective_first(tmp_path: Path) -> None:
    found = preferred(tmp_path / "s", objective=OF_TWO)
    assert found.best is None
    assert [each["trial"] for each in present(found.front)] == [0, 4, 1, 2]
    assert present(found.front)[2]["values"] == {"rate of solved": 0.5, "loss_quantile": 0.1}
    assert present(found.front)[2]["parameters"]["init_sigma"] == 0.2
    assert list(found.sentences()) == ["4 of 5 trials are on the Pareto front: #0, #4, #1, #2"]


def test_a_trial_beyond_a_constraint_is_neither_best_nor_on_the_front(tmp_path: Path) -> None:
    of_two = preferred(tmp_path / "two", objective=OF_TWO, constraints="stuck_rate <= 0.25")
    assert [each["trial"] for each in present(of_two.front)] == [0, 4, 1]
    assert next(iter(of_two.sentences())) == "4 of 5 trials meet the constraints: stuck_rate <= 0.25"
    of_one = preferred(tmp_path / "one", objective=LossQuantile(), constraints=["stuck_rate <= 0.25"])
    assert (present(of_one.best)["trial"], of_one.front, of_one.n_feasible) == (1, None, 4)
    none = preferred(tmp_path / "none", constraints=["solved_rate >= 0.5", "loss_quantile <= 0.01"])
    assert (none.best, none.n_feasible) == (None, 0)
