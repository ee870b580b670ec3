"""Several sweeps of one workload behind one connection, as if they were one."""

from collections.abc import Sequence
from pathlib import Path

import duckdb

from orchestrator.ledger.fragments import TABLES, open_snapshot, require_ledger
from orchestrator.ledger.reader import Ledger
from orchestrator.ledger.trials_view import trials_view

TRIALS_APART = 1_000_000
"""From a sweep's trial 0 to the next one's, so that a trial keeps its number while the sweeps before it go on."""


def connect(roots: Sequence[Path]) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the views of `Ledger.connect` over all rows, each trial with a number of its own.

    A column that some sweeps lack is null in their rows.

    Args:
        roots: Sweep directories.

    Raises:
        UserError: If there is no ledger in one of them, or a file cannot be read.
    """
    if len(roots) == 1:
        return Ledger(roots[0]).connect()
    for root in roots:
        require_ledger(root)
    snapshots = [open_snapshot(root) for root in roots]
    connection = duckdb.connect(config={"temp_directory": ""})
    for table in TABLES:
        parts = []
        for index, snapshot in enumerate(snapshots):
            connection.register(f"{table}_{index}", snapshot.dataset(table))
            parts.append(f"select * replace ((trial + {index * TRIALS_APART})::int as trial) from {table}_{index}")
        connection.execute(f"create view {table} as {' union all by name '.join(parts)}")
    columns = [name for name, *_ in connection.execute("select * from trainings limit 0").description]
    connection.execute(trials_view(columns))
    # As in `Ledger.connect`: SQL reads these views and nothing else, and draws nothing.
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
