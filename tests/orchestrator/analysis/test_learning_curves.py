"""Learning curves: many steps are grouped, and of many trainings some are taken."""

import duckdb
import numpy as np
import pytest

from attnsweep.orchestrator.analysis.learning_curves import quartile_curves

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
    [row] = quartile_curves(connection, "outcome").to_pylist()
    points = row["curve"]
    steps = [point["step"] for point in points]
    assert steps[:8] == [*range(8)]
    assert steps[8:20:4] == [8, 16, 32]
    assert steps[-4:] == [153, 182, 216, 256]
    # Each at the last probe of its group.
    assert points[0]["median"] == 0.0
    assert points[-1]["median"] == 300.0


def test_of_a_large_group_some_are_taken_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.analysis.learning_curves.MOST_TRAININGS", 2)
    marginal, plateau = quartile_curves(_connection(["plateau"] * 5 + ["marginal"]), "outcome")["curve"].to_pylist()
    assert [point["n"] for point in plateau] == [2] * len(STEPS)
    assert [point["n"] for point in marginal] == [1] * len(STEPS)
    assert [point["median"] for point in plateau] == np.median(CURVES[:2], axis=0).tolist()
