"""DuckDB views of the ledger's tables, for one sweep or several together."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from attnsweep.orchestrator.ledger.schema import BASE_COLUMNS, outcomes_in
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.vocabulary import UNJUDGED_OUTCOMES, Outcome, with_own

IS_JUDGED = f"outcome not in {UNJUDGED_OUTCOMES}"
"""The SQL condition for trainings that neither failed nor were pruned."""

Tables: TypeAlias = Mapping[str, ds.Dataset]
"""One sweep's tables by name."""

_LIMITS: dict[str, str | bool | int | float | list[str]] = {
    # SQL could write to a folder for temporary files, even though its access to files is disabled.
    "temp_directory": "",
    # A sweep may be training on the same machine.
    "memory_limit": "50%",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}

_TRIALS = """
WITH judged AS (
    SELECT *, {is_judged} AS is_judged, CASE WHEN {is_judged} THEN coalesce(eval_loss, 'inf') END AS loss FROM trainings
), counted AS (
    SELECT
        sweep, trial, any_value(workload) AS workload, any_value(variant) AS variant,{parameters}
        count(*) AS n_trainings,
        count(*) FILTER (is_judged) AS n_judged,
        count(*) FILTER (outcome = 'failed') AS n_failed,
        count(*) FILTER (outcome = 'pruned') AS n_pruned,
        count(*) FILTER (stuck AND is_judged) AS n_stuck,
        count(*) FILTER (outcome = 'solved') AS n_solved,
        quantile_cont(loss, [0.25, 0.5, 0.75]) AS loss_quartiles,
        sum(train_seconds) AS seconds,
        min(finished_at) AS first_finished_at,
        max(finished_at) AS last_finished_at
    FROM judged
    GROUP BY sweep, trial
)
SELECT
    * EXCLUDE (loss_quartiles, seconds, first_finished_at, last_finished_at),
    n_stuck / nullif(n_judged, 0) AS stuck_rate,
    n_solved / nullif(n_judged, 0) AS solved_rate,
    CASE WHEN isfinite(loss_quartiles[1]) THEN loss_quartiles[1] END AS loss_q25,
    CASE WHEN isfinite(loss_quartiles[2]) THEN loss_quartiles[2] END AS loss_median,
    CASE WHEN isfinite(loss_quartiles[3]) THEN loss_quartiles[3] END AS loss_q75,
    seconds, first_finished_at, last_finished_at
FROM counted
ORDER BY sweep, trial
"""

TRIAL_COLUMNS: Mapping[str, str] = {
    "sweep": "name of the sweep",
    "trial": "number of the trial",
    "workload": "name of the workload",
    "variant": "variant of the workload",
    "param_<name>": "the parameter; null too if its trainings differ in it",
    "n_trainings": "its trainings in the ledger so far",
    "n_judged": "of them, those that neither failed nor were pruned",
    "n_failed": "failed ones",
    "n_pruned": "pruned ones",
    "n_stuck": "stuck ones",
    "n_solved": "solved ones",
    "stuck_rate": "n_stuck / n_judged",
    "solved_rate": "n_solved / n_judged",
    "loss_q25": "lower quartile of eval_loss over the judged ones; null if it is not finite",
    "loss_median": "its median; one that is not finite counts as the largest",
    "loss_q75": "its upper quartile",
    "seconds": "sum of train_seconds",
    "first_finished_at": "finished_at of its first training",
    "last_finished_at": "finished_at of its last training",
}
"""What the columns of the view `trials` mean."""

_CONSTANT = """
        CASE WHEN count({name}) = count(*) AND min({name}) = max({name}) THEN min({name}) END AS {name},"""


def identifier(name: str) -> str:
    """Quotes a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def names_with(connection: duckdb.DuckDBPyConnection, prefix: str, table: str = "trainings") -> list[str]:
    """The names of the columns that begin with a prefix, without it."""
    columns = connection.execute(f"select * from {table} limit 0").description
    return [name.removeprefix(prefix) for name, *_ in columns if name.startswith(prefix)]


def param_column(name: str) -> str:
    return identifier(f"param_{name}")


def literal(text: str | None) -> str:
    """NULL for `None`."""
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def connect(sweeps: Sequence[Tables], trials_apart: int = 0) -> duckdb.DuckDBPyConnection:
    """A connection with the views `trainings`, `curves`, `heads` and `trials`, and the table `outcomes`.

    SQL can read these and nothing else: no file, no network, no extension, no Python variable.

    Args:
        sweeps: Rows of several are united by column name: a column that a sweep lacks is null, and `curves` and `heads`
            get a column `sweep`.
        trials_apart: Added to the trial numbers from each sweep to the next. With 0, trials of two sweeps may differ
            only in the column `sweep`.

    Raises:
        UserError: If a sweep is given twice.
    """
    return _with_views(_database(), sweeps, trials_apart)


def connect_to_shared(sweeps: Sequence[Tables], trials_apart: int = 0) -> duckdb.DuckDBPyConnection:
    """Like `connect` in less than a third of the time: all such connections of this process share one database.

    Each has views of its own. Do not hand one to a user: what SQL defines, the others see.
    """
    return _with_views(_shared_database().cursor(), sweeps, trials_apart)


def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(config=_LIMITS)
    database.execute("SET enable_external_access = false")
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    # DuckDB would draw its progress bar on stdout, between the results of queries; cursors cannot disable it. In
    # Jupyter without ipywidgets it has none and refuses the setting.
    if database.execute("SELECT current_setting('enable_progress_bar')").fetchone() == (True,):
        database.execute("SET enable_progress_bar = false")
    database.execute("SET lock_configuration = true")
    return database


_shared_database = cache(_database)


def _with_views(
    connection: duckdb.DuckDBPyConnection, sweeps: Sequence[Tables], trials_apart: int
) -> duckdb.DuckDBPyConnection:
    try:
        if len(sweeps) == 1:
            for table in BASE_COLUMNS:
                connection.register(table, sweeps[0][table])
        else:
            _unite(connection, sweeps, trials_apart)
        connection.register("outcomes", _outcomes(sweeps))
        columns = (name for tables in sweeps for name in tables["trainings"].schema.names)
        connection.execute(f"CREATE TEMP VIEW trials AS {_trials_view(list(dict.fromkeys(columns)))}")
    except BaseException:
        connection.close()
        raise
    return connection


def _unite(connection: duckdb.DuckDBPyConnection, sweeps: Sequence[Tables], trials_apart: int) -> None:
    first_rows = [tables["trainings"].head(1, columns=["sweep"])["sweep"].to_pylist() for tables in sweeps]
    names = [str(rows[0]) if rows else None for rows in first_rows]
    known = [name for name in names if name is not None]
    if repeated := sorted({name for name in known if known.count(name) > 1}):
        raise UserError(
            "DIR",
            given=f"the sweep {repeated[0]}, named twice",
            expected="different sweeps",
            fix="name each sweep once",
        )
    for table in BASE_COLUMNS:
        parts = []
        for number, (tables, name) in enumerate(zip(sweeps, names, strict=True)):
            part = f"{table}_{number}"
            connection.register(part, tables[table])
            label = "" if table == "trainings" else f"{literal(name)} AS sweep, "
            parts.append(f"SELECT {label}* REPLACE ((trial + {number * trials_apart})::INT AS trial) FROM {part}")
        connection.execute(f"CREATE TEMP VIEW {table} AS " + " UNION ALL BY NAME ".join(parts))


def _outcomes(sweeps: Sequence[Tables]) -> pa.Table:
    own: dict[str, Outcome] = {}
    for tables in reversed(sweeps):
        own |= outcomes_in(tables["trainings"].schema)
    columns = ("sentence", "colour", "is_stuck", "is_judged")
    known = with_own(own)
    return pa.table(
        {"outcome": [*known]} | {name: [getattr(outcome, name) for outcome in known.values()] for name in columns}
    )


def outcomes_of(connection: duckdb.DuckDBPyConnection) -> dict[str, Outcome]:
    """By label, in the order that all tables and figures use."""
    rows = connection.execute("select outcome, sentence, colour, is_stuck, is_judged from outcomes").fetchall()
    return {label: Outcome(*fields) for label, *fields in rows}


def _trials_view(columns: Sequence[str]) -> str:
    parameters = (_CONSTANT.format(name=identifier(name)) for name in columns if name.startswith("param_"))
    return _TRIALS.format(parameters="".join(parameters), is_judged=IS_JUDGED)
