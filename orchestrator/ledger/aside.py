"""Moves fragments that are damaged, or repeat trainings of others, to the folder `set_aside`."""

from pathlib import Path

import pyarrow as pa

from attnsweep.orchestrator.ledger.fragments import TABLES, file_of
from attnsweep.orchestrator.ledger.snapshot import Snapshot, examine
from attnsweep.orchestrator.storage import files
from attnsweep.orchestrator.storage.files import ASIDE, parquet_names
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.workloads.errors import UserError


def set_aside(place: Path, name: str) -> None:
    """Moves one fragment, whose trainings then do not count any more. Idempotent."""
    # The file in `trainings`, by which a fragment counts, is moved last: after a kill the next call moves the rest.
    for table in TABLES:
        if name in parquet_names(place / table):
            files.set_aside(place, table, name)


def set_damage_aside(place: Path) -> tuple[Snapshot, dict[str, str]]:
    """Moves all damaged fragments; returns the others, and a message for each that was moved."""
    messages: dict[str, str] = {}
    # Repeated, because without a damaged merge the files that it replaced count again, and may be damaged too.
    while (found := examine(place)).damaged:
        for name, fault in found.damaged.items():
            set_aside(place, name)
            messages[name] = f"{fault.subject}: {fault.given}; set aside in {place}/{ASIDE}, its trainings run again"
    return found.sound, messages


def set_doubles_aside(place: Path, snapshot: Snapshot) -> dict[str, str]:
    """Moves the smaller of two fragments that hold the same training; returns a message for each.

    A training is in two fragments if a writer that has lost its lock still completes an upload, or if a disk grants a
    lock to two hosts. Only the holder of the sweep's lock may call it.
    """
    messages: dict[str, str] = {}
    if not _n_doubled(snapshot):
        return messages
    kept_keys: set[tuple[str, int, int]] = set()
    rows = snapshot.rows()
    for name in sorted(rows, key=lambda name: (-rows[name], name)):
        keys = set(zip(*_trainings(snapshot.only([name])).to_pydict().values(), strict=True))
        if n := len(keys & kept_keys):
            set_aside(place, name)
            file = file_of(place, "trainings", name)
            others = f", its {len(keys) - n} others run again" if len(keys) > n else ""
            messages[name] = f"{file}: {n} trainings that other files hold too; set aside in {place}/{ASIDE}{others}"
        else:
            kept_keys |= keys
    return messages


def refuse_doubles(snapshot: Snapshot) -> None:
    """Raises UserError if a training is in two fragments."""
    if n := _n_doubled(snapshot):
        given = f"{n} trainings that are recorded in more than one file"
        expected = "files that record each training once"
        fix = f"set aside the files that repeat trainings with: attnsweep resume {as_argument(snapshot.place)}"
        raise UserError(f"{snapshot.place}/trainings", given=given, expected=expected, fix=fix)


def _n_doubled(snapshot: Snapshot) -> int:
    parts = [_trainings(snapshot.only([name])) for name in snapshot.files["trainings"]]
    return sum(part.num_rows for part in parts) - _distinct(pa.concat_tables(parts)).num_rows if parts else 0


def _trainings(snapshot: Snapshot) -> pa.Table:
    # With the sweep, so that rows copied from another sweep are no repetitions; they are refused elsewhere.
    return _distinct(snapshot.read("trainings", columns=["sweep", "trial", "replicate"]))


def _distinct(trainings: pa.Table) -> pa.Table:
    return trainings.unify_dictionaries().group_by(trainings.column_names).aggregate([])
