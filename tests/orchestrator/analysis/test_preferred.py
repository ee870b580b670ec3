"""The best trial under constraints, and the Pareto front of several objectives."""

from pathlib import Path

import numpy as np
import optuna
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep import LossQuantile, Rate, StuckRate, open_sweep
from attnsweep.orchestrator.analysis.results import Preferred, on_front, read_preferred
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.trial import JUDGING_COLUMNS, ended_in_turn, ended_trainings
from attnsweep.search_spaces.measured import Direction
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.present import present

points = st.integers(2, 3).flatmap(
    lambda n: st.lists(st.tuples(*[st.integers(0, 4).map(float)] * n), min_size=1, max_size=30)
)


@given(points, st.lists(st.booleans(), min_size=3, max_size=3))
def test_the_front_is_that_of_optunas_study(values: list[tuple[float, ...]], is_sought: list[bool]) -> None:
    directions: list[Direction] = ["maximize" if each else "minimize" for each in is_sought[: len(values[0])]]
    study = optuna.create_study(directions=directions)
    study.add_trials([optuna.trial.create_trial(values=list(each)) for each in values])
    signs = [-1.0 if each == "maximize" else 1.0 for each in directions]
    found = np.flatnonzero(on_front(np.array(values) * signs)).tolist()
    assert found == [each.number for each in study.best_trials]


def rows(trial: int, n_solved: int, n_stuck: int, loss: float) -> list[dict[str, object]]:
    ends = ["solved"] * n_solved + ["marginal"] * n_stuck
    return trial_rows(
        trial, [*ends, *["plateau"] * (4 - len(ends))], eval_loss=loss, param_init_sigma=0.1 * trial + 0.1
    )


TRIALS = (rows(0, 4, 0, 0.9), rows(1, 2, 0, 0.1), rows(2, 1, 3, 0.01), rows(3, 1, 1, 0.8), rows(4, 4, 0, 0.9))
"""Fewer solved ones have the lower losses; trial 3 is worse than trial 1, and trial 4 is as good as trial 0."""


def preferred(path: Path, **changes: object) -> Preferred:
    spec = small_sweep("s").but(**changes)
    sweep_on_disk(path, spec, *TRIALS, rows(5, 4, 0, 0.0)[:3])
    with Ledger(path).connect() as connection:
        return read_preferred(connection, spec)


def test_trials_that_no_other_beats_are_on_the_front_the_best_in_the_first_objective_first(tmp_path: Path) -> None:
    found = preferred(tmp_path / "s", objective=[Rate("solved"), LossQuantile()])
    assert found.best is None
    assert [each.trial for each in present(found.front)] == [0, 4, 1, 2]
    assert present(found.front)[2].values == {"rate of solved": 0.5, "loss_quantile": 0.1}
    assert present(found.front)[2].parameters["init_sigma"] == 0.2
    assert list(found.sentences()) == ["4 of 5 trials are on the Pareto front"]


def test_a_trial_beyond_a_constraint_is_neither_best_nor_on_the_front(tmp_path: Path) -> None:
    of_two = preferred(tmp_path / "two", objective=[Rate("solved"), LossQuantile()], constraints="stuck_rate <= 0.25")
    assert [each.trial for each in present(of_two.front)] == [0, 4, 1]
    assert next(iter(of_two.sentences())) == "4 of 5 trials meet the constraints: stuck_rate <= 0.25"
    of_one = preferred(tmp_path / "one", objective=LossQuantile(), constraints=["stuck_rate <= 0.25"])
    assert (present(of_one.best).trial, of_one.front, of_one.n_feasible) == (1, None, 4)
    none = preferred(tmp_path / "none", constraints=["solved_rate >= 0.5", "loss_quantile <= 0.01"])
    assert (none.best, none.n_feasible) == (None, 0)


def test_the_importance_is_of_one_objective_that_can_be_named(tmp_path: Path) -> None:
    sweep_on_disk(tmp_path / "s", small_sweep("s", objective=[StuckRate(), LossQuantile()]), *TRIALS)
    opened = open_sweep(tmp_path / "s")
    assert opened.importance().objective == "stuck_rate, to minimize"
    assert opened.importance("loss_quantile").objective == "loss_quantile, to minimize"
    with pytest.raises(UserError, match="objective: got 'loss', expected one of stuck_rate, loss_quantile"):
        opened.importance("loss")


def test_trials_in_turn_are_all_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.ledger.trial._ROWS_AT_ONCE", 3)
    rows = [{**row, "onset_step": 0} for trial in (5, 0, 2, 9) for row in trial_rows(trial, ["solved"] * 2)]
    table = pa.Table.from_pylist([{name: row[name] for name in JUDGING_COLUMNS} for row in rows])
    assert dict(ended_in_turn(table)) == ended_trainings(table)
    assert [trial for trial, _ in ended_in_turn(table)] == [0, 2, 5, 9]
    assert list(ended_in_turn(table.slice(0, 0))) == []
