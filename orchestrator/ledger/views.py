"""The ledger's tables as DuckDB's views: of one sweep, or of several as one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.ledger.fragments import Snapshot
from orchestrator.ledger.schema import BASE_COLUMNS
from orchestrator.ledger.trials_view import trials_view
from workloads.errors import UserError

if TYPE_CHECKING:
    import duckdb


def connect(snapshots: Sequence[Snapshot]) -> "duckdb.DuckDBPyConnection":
    """A DuckDB connection with the views `trainings`, `curves`, `heads` and `trials`.

    Its SQL reads these views and nothing else: no file, no network, no extension, no Python variable.

    Args:
        snapshots: Of one sweep; or of several, whose rows are then united by the names of their columns: null where a
            sweep lacks one, and a column `sweep` in `curves` and `heads` too.

    Raises:
        UserError: If two are of one sweep.
    """
    import duckdb

    # No folder to spill to: DuckDB lets SQL write to it, external access or not.
    connection = duckdb.connect(config={"temp_directory": ""})
    if len(snapshots) == 1:
        for table in BASE_COLUMNS:
            connection.register(table, snapshots[0].dataset(table))
    else:
        _unite(connection, snapshots)
    columns = (name for snapshot in snapshots for name in snapshot.dataset("trainings").schema.names)
    connection.execute(trials_view(list(dict.fromkeys(columns))))
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _unite(connection: "duckdb.DuckDBPyConnection", snapshots: Sequence[Snapshot]) -> None:
    sweeps = [_sweep_of(snapshot) for snapshot in snapshots]
    known = [sweep for sweep in sweeps if sweep is not None]
    if twice := sorted({sweep for sweep in known if known.count(sweep) > 1}):
        raise UserError("DIR", given=f"the sweep {twice[0]} twice", expected="different sweeps", mend="give each once")
    for table in BASE_COLUMNS:
        parts = []
        for number, (snapshot, sweep) in enumerate(zip(snapshots, sweeps, strict=True), start=1):
            part = f"{table}_{number}"
            connection.register(part, snapshot.dataset(table))
            label = "" if table == "trainings" else f"{_quoted(sweep)} AS sweep, "
            parts.append(f"SELECT {label}* FROM {part}")
        connection.execute(f"CREATE VIEW {table} AS " + " UNION ALL BY NAME ".join(parts))


def _sweep_of(snapshot: Snapshot) -> str | None:
    """The sweep's name, as its rows have it; `None` while there are none."""
    first = snapshot.dataset("trainings").head(1, columns=["sweep"])["sweep"].to_pylist()
    return str(first[0]) if first else None


def _quoted(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"
