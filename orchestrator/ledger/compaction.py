"""Merges the ledger's many small files into larger ones, and removes files that a crash or a merge has left.

A merge is published like a commit, under a new name. From that moment the fragments whose rows it holds do not count;
they are removed next. So each row is read exactly once, even after a crash.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.ledger.aside import refuse_doubles
from attnsweep.orchestrator.ledger.fragments import MERGED, ROW_GROUP_ROWS, Stamp, file_of, publish
from attnsweep.orchestrator.ledger.schema import SORT_KEYS, in_order
from attnsweep.orchestrator.ledger.snapshot import Snapshot, open_snapshot, require_ledger
from attnsweep.orchestrator.storage.copies import CHECKPOINTS
from attnsweep.orchestrator.storage.files import parquet_names, remove, unfinished
from attnsweep.orchestrator.storage.locks import Lock
from attnsweep.orchestrator.storage.place_names import PlaceName, place_of
from attnsweep.orchestrator.storage.run_records import PROGRESS
from attnsweep.workloads.errors import UserError

MAX_FRAGMENTS = 12
"""Of those that are not full. With three tables, one commit and one merge under way, these are at most 42 files."""
FULL_ROWS = 10_000_000
"""Over all tables; a full fragment is not merged again, which would stop the driver for seconds."""
_CELLS_AT_ONCE = 1_500_000
"""Rows times columns that a merge holds in memory: 250,000 rows of `curves`, or some 20,000 of `trainings`."""


def compact(where: PlaceName) -> None:
    """Merges a sweep's ledger into one file per table, and removes what a killed process left and the checkpoints of a
    finished sweep. Fragments that keep different probes of their curves (each, every second, ...) stay apart.

    Raises:
        UserError: If another process writes the ledger, or it cannot be read or written.
    """
    place = place_of(where)
    require_ledger(place)
    with closing(Lock(place, "compact")):
        snapshot = open_snapshot(place)
        recover(snapshot)
        for names in snapshot.by_thinning().values():
            if len(names) > 1:
                merge(snapshot.only(names))
        if (progress := PROGRESS.read_if_sound(place)) is not None and progress.finished:
            folder = place / CHECKPOINTS
            remove([*unfinished(folder), *(folder / f"{name}.parquet" for name in parquet_names(folder))])


def recover(snapshot: Snapshot) -> None:
    """Removes files of interrupted commits and merged files. Only the holder of the sweep's lock may call it."""
    # Durable at once: merged files that a crash brought back would count again after a later merge had removed the file
    # that replaces them.
    remove(snapshot.leftovers())


def merge(chosen: Snapshot, leave_out: pc.Expression | None = None) -> str:
    """Merges fragments whose curves keep the same probes into one with sorted rows; returns its name.

    Args:
        leave_out: Selects rows of `trainings` to leave out. Their trainings have no rows in the other tables.

    Raises:
        UserError: If the fragments belong to different sweeps, share trainings, or one cannot be read.
    """
    place, names = chosen.place, sorted(chosen.files["trainings"])
    refuse_doubles(chosen)
    specs = sorted({file.stamp.spec_sha256 for files in chosen.files.values() for file in files.values()})
    if len(specs) > 1:
        given = f"rows of {len(specs)} sweeps, with the spec hashes {', '.join(spec[:12] for spec in specs)}"
        fix = "remove the files that were copied into the directory from another sweep"
        raise UserError(str(place), given=given, expected="the rows of one sweep", fix=fix)
    (kept_every,) = chosen.by_thinning()
    stamp = Stamp(spec_sha256=specs[0], replaces=tuple(names), curves_every=kept_every)
    contents = {
        table: (
            chosen.dataset(table).schema,
            sorted_batches(chosen, table, leave_out if table == "trainings" else None),
        )
        for table in chosen.files
    }
    merged = publish(place, MERGED.removesuffix("-"), contents, stamp)
    # Without their files of the table `trainings`, which go first, the others do not count.
    remove([file_of(place, table, name) for table in chosen.files for name in names])
    return merged


def due(rows: Mapping[str, int]) -> list[str]:
    """Chooses fragments to merge now, by their rows; none until more than `MAX_FRAGMENTS` have under `FULL_ROWS` rows.

    Then it takes the smallest two, and the next larger ones as long as each has fewer rows than those taken together.
    So a row is rewritten about log(number of commits) times, not once per commit.
    """
    by_size = sorted((name for name in rows if rows[name] < FULL_ROWS), key=lambda name: rows[name])
    if len(by_size) <= MAX_FRAGMENTS:
        return []
    chosen = by_size[:2]
    for name in by_size[2:]:
        if rows[name] >= sum(rows[other] for other in chosen):
            break
        chosen.append(name)
    return chosen


def sorted_batches(snapshot: Snapshot, table: str, leave_out: pc.Expression | None = None) -> Iterator[pa.RecordBatch]:
    """All rows of one table in order, with `_CELLS_AT_ONCE` cells in memory at a time."""
    trials = np.unique(snapshot.read("trainings", columns=["trial"])["trial"].to_numpy())
    kept = pc.scalar(True) if leave_out is None else ~leave_out
    n_cells = sum(file.rows for file in snapshot.files[table].values()) * len(snapshot.dataset(table).schema)
    n_parts = min(1 + n_cells // _CELLS_AT_ONCE, len(trials))
    n_rows = 0
    for part in np.array_split(trials, n_parts):
        # Every file stores the range of its trials, from which Arrow knows which rows it can skip.
        inside = (pc.field("trial") >= int(part[0])) & (pc.field("trial") <= int(part[-1]))
        rows = in_order(snapshot.read(table, filter=inside & kept), SORT_KEYS[table])
        n_rows += rows.num_rows
        yield from rows.combine_chunks().to_batches(max_chunksize=ROW_GROUP_ROWS)
    assert n_rows == snapshot.dataset(table).count_rows(filter=kept)
