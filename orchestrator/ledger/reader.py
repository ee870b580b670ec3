"""Reading a sweep's ledger, also while it is written: each call sees every row committed so far, once."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.ledger.fragments import open_snapshot, require_ledger
from orchestrator.ledger.schema import BASE_COLUMNS
from orchestrator.ledger.trials_view import trials_view

if TYPE_CHECKING:
    import duckdb


class Ledger:
    """One sweep's tables.

    Args:
        root: The sweep directory.

    Raises:
        UserError: If there is no ledger in it. Every method raises it for a file that cannot be read.
    """

    def __init__(self, root: Path) -> None:
        require_ledger(root)
        self._root = root

    def trainings(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        """One row per training."""
        return self._read("trainings", columns, filter)

    def curves(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        """One row per training, step and metric."""
        return self._read("curves", columns, filter)

    def heads(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        """One row per training, probe step, layer and head; none for a workload without attention heads."""
        return self._read("heads", columns, filter)

    def connect(self) -> "duckdb.DuckDBPyConnection":
        """A DuckDB connection with the views `trainings`, `curves`, `heads` and `trials`, as of now.

        Its SQL reads these views and nothing else: no file, no network, no extension, no Python variable. The views
        are opened files, so it needs no access to the file system, and a compaction does not disturb it.
        """
        import duckdb

        snapshot = open_snapshot(self._root)
        # No folder to spill to: DuckDB lets SQL write to it, external access or not.
        connection = duckdb.connect(config={"temp_directory": ""})
        for table in BASE_COLUMNS:
            connection.register(table, snapshot.dataset(table))
        connection.execute(trials_view(snapshot.dataset("trainings").schema.names))
        connection.execute("SET TimeZone = 'UTC'")
        # It would be drawn on stdout, where results go.
        connection.execute("SET enable_progress_bar = false")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection

    def _read(self, table: str, columns: Sequence[str] | None, filter: pc.Expression | None) -> pa.Table:
        dataset = open_snapshot(self._root).dataset(table)
        return dataset.to_table(columns=None if columns is None else list(columns), filter=filter)
