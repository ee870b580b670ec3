"""Learning curves: many steps are grouped, and of many trainings some are taken."""

import duckdb
import pytest

from attnsweep.orchestrator.analysis.learning_curves import quartile_curves

STEPS = (0, 1, 2, 4, 7, 10)


def _connection(outcomes: list[str]) -> duckdb.DuckDBPyConnection:
    """The loss of training `at` is `at` at each step."""
    connection = duckdb.connect()
    columns = "trial int, replicate int, training_id text, outcome text, diverged_step int"
    connection.execute(f"create table trainings ({columns})")
    connection.execute("create table curves (trial int, replicate int, metric text, step int, value double)")
    for at, outcome in enumerate(outcomes):
        connection.execute("insert into trainings values (?, 0, ?, ?, null)", [at, str(at), outcome])
        rows = [(at, step, float(at)) for step in STEPS]
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
    monkeypatch.setattr("attnsweep.orchestrator.analysis.learning_curves.MAX_TRAININGS", 2)
    marginal, plateau = quartile_curves(_connection(["plateau"] * 5 + ["marginal"]), "outcome")["curve"].to_pylist()
    assert [point["n"] for point in plateau] == [2] * len(STEPS)
    assert [point["n"] for point in marginal] == [1] * len(STEPS)
    assert {point["median"] for point in plateau} == {0.5}
