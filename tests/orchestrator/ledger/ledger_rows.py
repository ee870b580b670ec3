"""Small ledgers for these tests."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import curves_schema, heads_schema, trainings_schema
from attnsweep.orchestrator.ledger.snapshot import examine
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.storage.place_names import PlaceName, place_of
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters

TRAININGS = trainings_schema(CategoryPairsParameters, ("zero", "mean"))
CURVES = curves_schema()
HEADS = heads_schema(("positional", "rare_token"))
WITHOUT_HEADS = {"trainings": TRAININGS, "curves": CURVES}
SCHEMAS = WITHOUT_HEADS | {"heads": HEADS}
SPEC = "5ec" * 21 + "a"

_TRAINING = {
    "sweep": "quick-1",
    "workload": "category_pairs",
    "training_id": "t",
    "seed": 7,
    "outcome": "solved",
    "stuck": False,
    "n_steps": 10,
    "train_seconds": 0.5,
    "lane": 0,
    "pack_size": 1,
    "finished_at": datetime(2025, 11, 1, 12, tzinfo=UTC),
}

Key = tuple[int, int]


def training_rows(pack: str, *rows: dict[str, Any]) -> pa.Table:
    """`trainings` rows with the given values; the other columns have arbitrary ones."""
    records = [_TRAINING | {"pack": pack} | row for row in rows]
    return pa.Table.from_pylist([{name: record.get(name) for name in TRAININGS.names} for record in records], TRAININGS)


def pack_rows(pack: str, keys: list[Key], n_steps: int = 3) -> tuple[pa.Table, pa.Table, pa.Table]:
    """One pack's three tables: for each training `n_steps` points of two curves, and one head."""
    ids = [{"training_id": f"{trial}/{replicate}", "trial": trial, "replicate": replicate} for trial, replicate in keys]
    curves = [
        key | {"step": step, "metric": metric, "value": float(step)}
        for key in ids
        for step in reversed(range(n_steps))
        for metric in ("loss", "grad_norm")
    ]
    heads = [
        key | {"step": 0, "layer": 0, "head": 0, "role": "none", "score_positional": 0.5, "score_rare_token": None}
        for key in ids
    ]
    return (training_rows(pack, *ids), pa.Table.from_pylist(curves, CURVES), pa.Table.from_pylist(heads, HEADS))


def open_writer(root: PlaceName, schemas: Mapping[str, pa.Schema] = SCHEMAS, spec_sha256: str = SPEC) -> LedgerWriter:
    return LedgerWriter(place_of(root), schemas, spec_sha256)


def file_of(root: Path, table: str, pack: str) -> Path:
    """The one file that a pack was committed to."""
    (path,) = (root / table).glob(f"{pack}-*.parquet")
    return path


def committed_keys(root: PlaceName) -> set[Key]:
    """(trial, replicate) of every training in the ledger."""
    rows = Ledger(root).trainings(columns=["trial", "replicate"])
    return set(zip(rows["trial"].to_pylist(), rows["replicate"].to_pylist(), strict=True))


def keys_of(*trials: int, n_replicates: int = 2) -> set[Key]:
    return {(trial, replicate) for trial in trials for replicate in range(n_replicates)}


def commit(root: PlaceName, *trials: int, n_replicates: int = 2, n_steps: int = 3) -> set[Key]:
    """Commits a pack `p<trial>` for each trial; returns its trainings."""
    with open_writer(root) as writer:
        for trial in trials:
            keys = sorted(keys_of(trial, n_replicates=n_replicates))
            writer.commit(f"p{trial}", *pack_rows(f"p{trial}", keys, n_steps))
    return keys_of(*trials, n_replicates=n_replicates)


def faults_of(root: PlaceName) -> list[str]:
    """The files that are damaged or left over."""
    place = place_of(root)
    found = examine(place)
    damaged = [fault.subject.removeprefix(f"{place}/") for fault in found.damaged.values()]
    return damaged or [str(path.relative_to(place)) for path in found.sound.leftovers()]


def held(root: PlaceName, n_steps: int = 3) -> set[Key]:
    """The trainings of a ledger, each of which must be once in each table."""

    def counts(connection: duckdb.DuckDBPyConnection) -> list[set[tuple[int, int, int]]]:
        sql = "SELECT trial, replicate, count(*) FROM {} GROUP BY ALL"
        return [set(connection.sql(sql.format(table)).fetchall()) for table in ("trainings", "curves", "heads")]

    trainings, curves, heads = Ledger(root).ask(counts)
    found = {(trial, replicate) for trial, replicate, _ in trainings}
    assert trainings == heads == {(*key, 1) for key in found}
    assert curves == {(*key, 2 * n_steps) for key in found}
    return found
