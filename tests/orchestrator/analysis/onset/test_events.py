"""When an event first held, the delay from one to another, and who is censored where."""

import duckdb
import pytest

from attnsweep.orchestrator.analysis.onset.events import event_names, event_times

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
