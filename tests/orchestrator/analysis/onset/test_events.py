"""When an event first held, the delay from one to another, and who is censored where."""

import duckdb
import pytest

from attnsweep.orchestrator.analysis.onset_times import event_names, event_times, level_names, level_times

# trial, outcome, n_steps, param_n_steps, diverged_step, event_a, event_b
_ROWS = [
    (0, "plateau", 100, 100, None, 10, 40),
    (1, "plateau", 100, 100, None, 20, None),
    (2, "solved", 30, 100, None, 30, 25),
    (3, "diverged", 50, 100, 50, None, None),
    (4, "plateau", 100, 100, None, None, 60),
    (5, "failed", 0, 100, None, None, None),
    (6, "pruned", 40, 100, None, 10, None),
]


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    opened = duckdb.connect()
    columns = "trial int, outcome varchar, n_steps int, param_n_steps int, diverged_step int, event_a int, event_b int"
    opened.execute(f"create table trainings ({columns}, replicate int default 0)")
    opened.executemany("insert into trainings values (?, ?, ?, ?, ?, ?, ?, 0)", _ROWS)
    return opened


def test_events_are_found_by_their_columns(connection: duckdb.DuckDBPyConnection) -> None:
    assert event_names(connection) == ["a", "b"]


def test_a_training_without_the_event_is_censored_or_never_has_it(connection: duckdb.DuckDBPyConnection) -> None:
    times = event_times(connection, "a")
    # The one that diverged at step 50 stays without it to the last step; failed and pruned ones are left out.
    assert times.trial.tolist() == [0, 1, 2, 3, 4]
    assert times.step.tolist() == [10, 20, 30, 100, 100]
    assert times.came.tolist() == [True, True, True, False, False]


def test_a_delay_counts_from_the_first_event(connection: duckdb.DuckDBPyConnection) -> None:
    times = event_times(connection, "b", after="a")
    assert times.trial.tolist() == [0, 1, 2]
    assert times.step.tolist() == [30, 80, 0]
    assert times.came.tolist() == [True, False, True]


def test_a_level_is_passed_where_the_loss_is_more_than_a_hundredth_below_it(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    connection.execute("alter table trainings add column level_mean double")
    connection.execute("update trainings set level_mean = case when trial = 4 then -1.0 when trial < 4 then 2.0 end")
    connection.execute("create table curves (trial int, replicate int, metric varchar, step int, value double)")
    losses = {
        0: (3.0, 1.97, 1.5),
        1: (3.0, 2.0, 1.985),
        2: (1.0, 1.0, 1.0),
        3: (3.0, 3.0, 3.0),
        4: (0.0, -1.005, -1.02),
    }
    rows = [(trial, 0, "eval_loss", 10 * at, loss) for trial, of in losses.items() for at, loss in enumerate(of)]
    connection.executemany("insert into curves values (?, ?, ?, ?, ?)", [*rows, (1, 0, "loss", 5, 0.0)])
    assert level_names(connection) == ["mean"]
    times = level_times(connection, "mean")
    assert times.trial.tolist() == [0, 1, 2, 3, 4]
    assert times.came.tolist() == [True, False, True, False, True]
    assert times.step.tolist() == [10, 100, 0, 100, 20]
