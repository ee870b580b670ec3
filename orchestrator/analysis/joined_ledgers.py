"""Several sweeps of one workload behind one connection, as if they were one."""

from collections.abc import Mapping

import duckdb

from orchestrator.ledger.fragments import TABLES
from orchestrator.ledger.reader import Ledger
from orchestrator.ledger.trials_view import trials_view
from orchestrator.ledger.views import connect as connect_tables
from orchestrator.ledger.views import quoted
from orchestrator.places.location import Location

TRIALS_APART = 1_000_000
"""From a sweep's trial 0 to the next one's, so that a trial keeps its number while the sweeps before it go on."""


def connect(roots: Mapping[str, Location]) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the views of `Ledger.connect` over all rows, each trial with a number of its own.

    A column that some sweeps lack is null in their rows.

    Args:
        roots: Sweep directories, by the name of the sweep.

    Raises:
        UserError: If there is no ledger in one of them, or a file cannot be read.
    """
    connection = connect_tables([Ledger(root).tables() for root in roots.values()])
    if len(roots) > 1:
        numbers = " ".join(f"when {quoted(name)} then {at * TRIALS_APART}" for at, name in enumerate(roots))
        for table in TABLES:
            # A temporary view stands before the one of the same name that it reads.
            connection.execute(
                f"create temp view {table} as select * replace ((trial + case sweep {numbers} end)::int as trial) "
                f"from main.{table}"
            )
        columns = [name for name, *_ in connection.execute("select * from trainings limit 0").description]
        connection.execute(f"create temp view trials as {trials_view(columns)}")
    return connection
