"""Learning curves: many steps are grouped, and which trainings still moved is by the rule that labels them `moving`."""

import duckdb
import numpy as np
import pytest

from attnsweep.orchestrator.analysis.learning_curves import quartile_curves, read_motion_curves
from attnsweep.workloads.diagnostics.outcomes import is_moving

STEPS = np.array([0, 1, 2, 4, 7, 10])
CURVES = np.array(
    [
        [9.0, 8.0, 7.0, 6.0, 5.0, 4.0],
        [9.0, 5.0, 5.0, 5.0, 5.0, 5.0],
        [9.0, 8.0, 7.0, 6.0, 5.0, 4.951],
        [9.0, 8.0, 7.0, 6.0, 5.0, 4.949],
        [9.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        [-2.0, -2.0, -2.0, -2.0, -2.0, -2.0],
        [-1.0, -2.0, -2.0, -2.0, -2.0, -2.03],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    ]
)


def _connection(outcomes: list[str]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(
        "create table trainings (trial int, replicate int, training_id text, outcome text, diverged_step int)"
    )
    connection.execute("create table curves (trial int, replicate int, metric text, step int, value double)")
    for at, outcome in enumerate(outcomes):
        connection.execute("insert into trainings values (?, 0, ?, ?, null)", [at, str(at), outcome])
    rows = [
        (at, int(step), float(value))
        for at, curve in enumerate(CURVES)
        for step, value in zip(STEPS, curve, strict=True)
    ]
    connection.executemany("insert into curves values (?, 0, 'eval_loss', ?, ?)", rows)
    return connection


def test_many_steps_are_grouped_four_to_a_doubling() -> None:
    connection = duckdb.connect()
    connection.execute(
        "create table trainings as select 0 as trial, 0 as replicate, '0' as training_id, 'plateau' as outcome,"
        " null::int as diverged_step"
    )
    connection.execute(
        "create table curves as select 0 as trial, 0 as replicate, 'eval_loss' as metric, step, step::double as value "
        "from range(0, 301) as steps(step)"
    )
    points = quartile_curves(connection, "outcome")["plateau"]
    steps = [point.step for point in points]
    assert steps[:8] == [*range(8)]
    assert steps[8:20:4] == [8, 16, 32]
    assert steps[-4:] == [153, 182, 216, 256]
    # Each at the last probe of its group.
    assert points[0].median == 0.0
    assert points[-1].median == 300.0


def test_of_a_large_group_some_are_taken_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.analysis.learning_curves.MOST_TRAININGS", 2)
    curves = quartile_curves(_connection(["plateau"] * 5 + ["marginal"]), "outcome")
    assert [point.n for point in curves["plateau"]] == [2] * len(STEPS)
    assert [point.n for point in curves["marginal"]] == [1] * len(STEPS)
    assert [point.median for point in curves["plateau"]] == np.median(CURVES[:2], axis=0).tolist()


def test_motion_is_that_of_the_labels() -> None:
    expected = is_moving(STEPS, CURVES)[:, -1]
    assert expected.tolist() == [True, False, False, True, False, False, True, False]
    connection = _connection(["plateau"] * len(CURVES))
    moving, still = read_motion_curves(connection)
    assert (moving.motion, moving.n_trainings, still.motion, still.n_trainings) == ("moving", 3, "still", 5)
    found = connection.execute("select motion = 'moving' from endings order by trial").fetchall()
    assert [one for (one,) in found] == expected.tolist()
    assert [point.median for point in moving.points] == pytest.approx(np.median(CURVES[expected], axis=0))


def test_of_what_was_cut_short_nothing_is_said() -> None:
    curves = read_motion_curves(_connection(["pruned", "diverged", "failed", "solved", "solved"]))
    assert [(each.outcome, each.motion, each.n_trainings) for each in curves] == [
        ("solved", "moving", 1),
        ("solved", "still", 1),
        ("diverged", "", 1),
        ("pruned", "", 1),
        ("failed", "", 1),
    ]
