"""Which trials of a ledger have all the trainings that they want: by their rows alone, as the sweep loop decides it."""

from collections import defaultdict

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.search_spaces.replication import Sequential, is_complete


def complete_trials(connection: duckdb.DuckDBPyConnection, rule: int | Sequential) -> list[int]:
    """The complete trials of a ledger, in order.

    Args:
        connection: From `Ledger.connect`.
        rule: The sweep's `replicates`.
    """
    columns = "trial" if isinstance(rule, int) else "trial, replicate, outcome, stuck"
    return complete_among(connection.sql(f"select {columns} from trainings").to_arrow_table(), rule)


def complete_among(rows: pa.Table, rule: int | Sequential) -> list[int]:
    """The complete trials among these rows of the table `trainings`, in order."""
    if isinstance(rule, int):
        counts = rows.group_by("trial").aggregate([("trial", "count")])
        return sorted(counts.filter(pc.field("trial_count") == rule)["trial"].to_pylist())
    ended: dict[int, dict[int, bool | None]] = defaultdict(dict)
    columns = (rows[name].to_pylist() for name in ("trial", "replicate", "outcome", "stuck"))
    for trial, replicate, outcome, stuck in zip(*columns, strict=True):
        ended[trial][replicate] = None if outcome == "failed" else stuck
    return sorted(trial for trial, by_replicate in ended.items() if is_complete(rule, by_replicate))
