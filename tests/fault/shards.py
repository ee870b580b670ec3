"""Sweeps of several drivers, each in this process, and what of their rows must be equal to one driver's."""

from typing import Any

import pyarrow as pa
from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.session import run_or_resume
from attnsweep.orchestrator.running.summary import Summary
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces import Sweep

MAY_DIFFER = {
    "sweep",
    "environment",
    "host",
    "train_seconds",
    "probe_seconds",
    "finished_at",
    "pack",
    "lane",
    "pack_size",
}
"""The identity, where and when a training was trained, and its place there."""
KEYS = ("trial", "replicate", "metric", "step", "layer", "head")


def run(spec: Sweep, path: PlaceName, shard: Shard | None = None, **resources: Any) -> Summary:
    """Runs one driver, or continues it, with packs whose size differs between shards."""
    given = {"local": True, "pack_size": 3 + 4 * (shard.index if shard else 1)} | resources
    return run_or_resume(spec, path, Resources(**given), Console(stderr=True), shard=shard)


def rows(path: PlaceName, table: str) -> pa.Table:
    """All rows of a table in a fixed order, without what may differ."""
    found = getattr(Ledger(path), table)()
    found = found.select([name for name in found.column_names if name not in MAY_DIFFER])
    # Dictionaries of several files may number their words otherwise.
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in found.schema]
    plain = found.cast(pa.schema(fields))
    return plain.sort_by([(name, "ascending") for name in KEYS if name in plain.column_names]).combine_chunks()


def assert_equal(one: PlaceName, other: PlaceName) -> None:
    """Whether two sweeps have the same rows, to the last bit."""
    for table in ("trainings", "curves", "heads"):
        a, b = rows(one, table), rows(other, table)
        assert a.num_rows == b.num_rows, table
        # As bytes: a NaN equals no NaN, and -0.0 equals 0.0.
        for name in a.column_names:
            assert a[name].to_pylist() == b[name].to_pylist(), (table, name)
            assert _bytes(a[name]) == _bytes(b[name]), (table, name)
    assert rows(one, "trainings").num_rows


def _bytes(column: pa.ChunkedArray) -> list[bytes | None]:
    chunks = [pa.array(column.to_pylist(), column.type)]
    return [None if each is None else each.to_pybytes() for chunk in chunks for each in chunk.buffers()]
