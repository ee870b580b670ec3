"""Merges the ledger's many small files into larger ones, and removes files that a crash or a merge has left.

A fragment is the files of one commit, one for each table. A merge is published like a commit, under a new name. From
that moment the fragments whose rows it holds are invalid; they are removed next. So each row is read exactly once, even
after a crash.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.ledger.fragments import (
    MERGED,
    ROW_GROUP_ROWS,
    TABLES,
    Snapshot,
    Stamp,
    counting_names,
    damaged,
    fragment_names,
    open_files,
    open_snapshot,
    publish,
    require_ledger,
)
from attnsweep.orchestrator.ledger.schema import SORT_KEYS, in_order
from attnsweep.orchestrator.ledger.verification import naming_damage, refuse_doubles
from attnsweep.orchestrator.storage.place import CHECKPOINTS, Place
from attnsweep.orchestrator.storage.place_names import PlaceName, place_of
from attnsweep.orchestrator.storage.sweep_directory import COURSE
from attnsweep.workloads.errors import UserError

MAX_FRAGMENTS = 12
"""The limit on the number of fragments (sets of files that one commit wrote) that are not full yet. With three tables,
one commit and one merge under way, these are at most 42 files."""

FULL_ROWS = 10_000_000
"""The number of rows, over all tables, from which on a fragment (the files of one commit) counts as full and is not
merged again. Merging so many rows would stop the driver for seconds."""

_CELLS_AT_ONCE = 1_500_000
"""The number of cells (rows times columns) that a merge holds in memory at a time: 250,000 rows of the table `curves`,
or 25,000 of `trainings`.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """The files that `recover` has removed.

    Attributes:
        uncommitted: Fragments whose commit was interrupted. Their trainings run again.
        n_files: Number of files removed.
    """

    uncommitted: tuple[str, ...]
    n_files: int


def compact(where: PlaceName) -> None:
    """Merges a sweep's ledger into one file per table, and removes what is no longer needed: files that a killed
    process left among the tables, and the checkpoints of a finished sweep.

    If parts of the ledger keep different probes of their curves (every one, every second, ...), these parts stay apart.

    Raises:
        UserError: If another process writes the ledger, or it cannot be read or written.
    """
    place = place_of(where)
    require_ledger(place)
    with closing(place.lock("compact")):
        recover(place)
        merge_alike(place)
        if (course := COURSE.read_if_there(place)) is not None and course.finished:
            place.remove(
                CHECKPOINTS, [*place.unfinished(CHECKPOINTS), *(f"{name}.parquet" for name in place.names(CHECKPOINTS))]
            )


def merge_alike(place: Place) -> None:
    """Merges fragments into a few, only those with each other whose curves keep the same share of probes."""
    for names in open_snapshot(place).by_thinning().values():
        if len(names) > 1:
            merge(place, names)


def recover(place: Place) -> Recovery:
    """Removes files of interrupted commits, and files whose rows have been merged into others.

    Only the holder of the sweep's lock may call this function.

    Raises:
        UserError: If a file of `trainings` cannot be read.
    """
    try:
        trainings = open_files(place, "trainings", fragment_names(place))
    except FileNotFoundError as gone:
        # `fragment_names` has just listed this file, and no other process can have removed it since, because this one
        # has the lock. So the file is a symbolic link without a target, which counts as damage.
        raise damaged(place, gone.filename, "a symbolic link whose target does not exist") from gone
    counting = set(counting_names(trainings))
    uncommitted = set()
    n_files = 0
    for table in TABLES:
        doomed = place.unfinished(table)
        for name in place.names(table):
            if name not in counting:
                doomed.append(f"{name}.parquet")
            if name not in trainings and not name.startswith(MERGED):
                uncommitted.add(name)
        # The removal is written to disk at once, because a crash might undo it and so bring the files back. Files whose
        # rows were merged into another file would then count again, once a later merge has removed that file.
        place.remove(table, doomed)
        n_files += len(doomed)
    return Recovery(uncommitted=tuple(sorted(uncommitted)), n_files=n_files)


def merge(place: Place, names: Collection[str], leave_out: pc.Expression | None = None) -> str:
    """Merges fragments into one, with sorted rows; returns its name. Holds `_CELLS_AT_ONCE` cells at a time.

    Args:
        names: Fragments whose curves keep the same probes.
        leave_out: Selects rows of `trainings` to leave out. Their trainings have no rows in the other tables.

    Raises:
        UserError: If the fragments belong to different sweeps, share trainings, or one cannot be read.
    """
    chosen = open_snapshot(place).only(names)
    refuse_doubles(place, chosen)
    specs = sorted({file.stamp.spec_sha256 for files in chosen.files.values() for file in files.values()})
    if len(specs) > 1:
        raise UserError(
            str(place),
            given=f"rows of {len(specs)} sweeps, with the spec hashes {', '.join(spec[:12] for spec in specs)}",
            expected="the rows of one sweep",
            fix="remove the files that were copied into the directory from another sweep",
        )
    (kept_every,) = chosen.by_thinning()
    stamp = Stamp(spec_sha256=specs[0], replaces=tuple(sorted(names)), curves_every=kept_every)
    contents = {
        table: (
            chosen.dataset(table).schema,
            sorted_batches(place, chosen, table, leave_out if table == "trainings" else None),
        )
        for table in chosen.files
    }
    merged = publish(place, MERGED.removesuffix("-"), contents, stamp)
    for table in chosen.files:
        place.remove(table, [f"{name}.parquet" for name in names])
    return merged


def due(rows: Mapping[str, int]) -> list[str]:
    """Chooses which fragments to merge now, by their rows: the smallest, or none while there are few small ones.

    None are chosen until more than `MAX_FRAGMENTS` of them have fewer than `FULL_ROWS` rows. Then the smallest two are
    chosen, and the next larger ones as long as each has fewer rows than the chosen ones together. So a row is rewritten
    about log(number of commits) times, not once per commit. Rows of a full fragment are never rewritten.
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


def sorted_batches(
    place: Place, snapshot: Snapshot, table: str, leave_out: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields all rows of one table in sorted order. Holds `_CELLS_AT_ONCE` cells at a time."""
    with naming_damage([place]):
        trials = np.unique(snapshot.dataset("trainings").to_table(columns=["trial"])["trial"].to_numpy())
    dataset = snapshot.dataset(table)
    dataset = dataset if leave_out is None else dataset.filter(~leave_out)
    n_cells = sum(file.rows for file in snapshot.files[table].values()) * len(dataset.schema)
    n_parts = min(1 + n_cells // _CELLS_AT_ONCE, len(trials))
    n_rows = 0
    for part in np.array_split(trials, n_parts):
        # Every file stores the range of its trials, from which Arrow knows which rows it can skip.
        inside = (pc.field("trial") >= int(part[0])) & (pc.field("trial") <= int(part[-1]))
        with naming_damage([place]):
            rows = in_order(dataset.to_table(filter=inside if n_parts > 1 else None), SORT_KEYS[table])
        n_rows += rows.num_rows
        yield from rows.combine_chunks().to_batches(max_chunksize=ROW_GROUP_ROWS)
    assert n_rows == dataset.count_rows()
