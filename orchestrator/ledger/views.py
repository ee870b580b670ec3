"""The ledger's tables as DuckDB views, of one sweep or of several together."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import pyarrow.dataset as ds

from attnsweep.orchestrator.ledger.schema import BASE_COLUMNS
from attnsweep.orchestrator.ledger.sql import literal
from attnsweep.orchestrator.ledger.trials_view import trials_view
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    import duckdb

Tables: TypeAlias = Mapping[str, ds.Dataset]
"""One sweep's tables by name."""

_LIMITS: dict[str, str | bool | int | float | list[str]] = {
    # No folder to spill to: SQL may write to it even without external access.
    "temp_directory": "",
    # The sweep may be training on this machine.
    "memory_limit": "50%",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def connect(sweeps: Sequence[Tables], trials_apart: int = 0) -> "duckdb.DuckDBPyConnection":
    """A DuckDB connection with the views `trainings`, `curves`, `heads` and `trials`.

    SQL can read these views and nothing else: no file, no network, no extension, no Python variable.

    Args:
        sweeps: The tables of one sweep or several. Rows of several are united by column name: a column that a sweep
            lacks is null, and `curves` and `heads` get a column `sweep`.
        trials_apart: Added to the trial numbers once per preceding sweep. By default only the column `sweep`
            distinguishes trials of the same number.

    Raises:
        UserError: If a sweep is given twice.
    """
    return _with_views(_database(), sweeps, trials_apart)


def connect_to_shared(sweeps: Sequence[Tables], trials_apart: int = 0) -> "duckdb.DuckDBPyConnection":
    """`connect`, to a database that this process makes once: it takes a third of the time.

    The views are the connection's own. Not for users, who may define what others would find there.
    """
    return _with_views(_shared_database().cursor(), sweeps, trials_apart)


@cache
def _shared_database() -> "duckdb.DuckDBPyConnection":
    return _database()


def _database() -> "duckdb.DuckDBPyConnection":
    """An empty database without access to anything outside, before any SQL that contains column names from files."""
    import duckdb

    database = duckdb.connect(config=_LIMITS)
    database.execute("SET enable_external_access = false")
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    # The progress bar, which cursors do not have, would be drawn on stdout, among the results. In Jupyter without
    # ipywidgets, DuckDB has none and refuses to be told so.
    if database.execute("SELECT current_setting('enable_progress_bar')").fetchone() == (True,):
        database.execute("SET enable_progress_bar = false")
    database.execute("SET lock_configuration = true")
    return database


def _with_views(
    connection: "duckdb.DuckDBPyConnection", sweeps: Sequence[Tables], trials_apart: int
) -> "duckdb.DuckDBPyConnection":
    try:
        if len(sweeps) == 1:
            for table in BASE_COLUMNS:
                connection.register(table, sweeps[0][table])
        else:
            _unite(connection, sweeps, trials_apart)
        columns = (name for tables in sweeps for name in tables["trainings"].schema.names)
        connection.execute(f"CREATE TEMP VIEW trials AS {trials_view(list(dict.fromkeys(columns)))}")
    except BaseException:
        connection.close()
        raise
    return connection


def _unite(connection: "duckdb.DuckDBPyConnection", sweeps: Sequence[Tables], trials_apart: int) -> None:
    names = [_name_of(tables) for tables in sweeps]
    known = [name for name in names if name is not None]
    if twice := sorted({name for name in known if known.count(name) > 1}):
        raise UserError("DIR", given=f"the sweep {twice[0]} twice", expected="different sweeps", fix="name each once")
    for table in BASE_COLUMNS:
        parts = []
        for number, (tables, name) in enumerate(zip(sweeps, names, strict=True)):
            part = f"{table}_{number}"
            connection.register(part, tables[table])
            label = "" if table == "trainings" else f"{literal(name)} AS sweep, "
            parts.append(f"SELECT {label}* REPLACE ((trial + {number * trials_apart})::INT AS trial) FROM {part}")
        connection.execute(f"CREATE TEMP VIEW {table} AS " + " UNION ALL BY NAME ".join(parts))


def _name_of(tables: Tables) -> str | None:
    """The sweep's name according to its rows; `None` without rows."""
    first = tables["trainings"].head(1, columns=["sweep"])["sweep"].to_pylist()
    return str(first[0]) if first else None
