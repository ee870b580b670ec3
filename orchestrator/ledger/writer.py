"""Writes the ledger. The sweep's driver is the only writer."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.ledger.aside import set_damage_aside, set_doubles_aside
from attnsweep.orchestrator.ledger.compaction import due, merge, recover
from attnsweep.orchestrator.ledger.fragments import MERGED, ROW_GROUP_ROWS, Stamp, file_of, publish
from attnsweep.orchestrator.ledger.schema import SORT_KEYS, conform, in_order
from attnsweep.orchestrator.ledger.snapshot import Snapshot, open_snapshot
from attnsweep.orchestrator.storage.files import ASIDE, own_folder, write_text
from attnsweep.orchestrator.storage.locks import Lock
from attnsweep.workloads.errors import UserError

IS_FAILED = pc.field("outcome") == "failed"


class LedgerWriter:
    """Writes the ledger of one sweep, whose lock it holds. Each commit atomically adds one fragment.

    Opening it moves fragments that are damaged or repeat trainings to the folder `set_aside`, and removes what an
    earlier writer that was killed has left. It keeps no rows in memory.

    Attributes:
        set_aside: A message for each fragment that was moved, by its name.

    Raises:
        UserError: If another process writes the ledger, it holds another sweep's rows, or it cannot be written.
    """

    def __init__(self, place: Path, schemas: Mapping[str, pa.Schema], spec_sha256: str) -> None:
        self._place = place
        self._schemas = schemas
        self._stamp = Stamp(spec_sha256=spec_sha256)
        self._lock = Lock(place, "resume" if (place / "trainings").is_dir() else "run")
        try:
            for table in schemas:
                own_folder(place, table)
            snapshot, self.set_aside = set_damage_aside(place)
            recover(snapshot)
            self._check_sweep(snapshot)
            doubles = set_doubles_aside(place, snapshot)
            self.set_aside |= doubles
            self._rows = _mergeable(snapshot, doubles)
        except BaseException:
            self._lock.close()
            raise

    def confirm(self) -> None:
        """Raises UserError if another process has taken the lock: nothing more may be written."""
        self._lock.confirm()

    def commit(
        self, pack: str, trainings: pa.Table, curves: pa.Table | None, heads: pa.Table | None, *, curves_every: int = 1
    ) -> None:
        """Adds the results of packs in one commit, durable when the call returns.

        Args:
            pack: The first pack, with whose name the fragment's begins; it may be repeated.
            curves, heads: `None` if there are no rows, as for a training that failed.
            curves_every: 1 if `curves` holds every probe, k if it holds every k-th.
        """
        assert trainings.num_rows
        assert not pack.startswith((MERGED, "."))
        assert "/" not in pack
        if heads is not None and "heads" not in self._schemas:
            raise ValueError(
                "heads: got rows of attention heads, expected none, because the workload declares no heads"
            )
        tables = {"trainings": trainings, "curves": curves, "heads": heads}
        rows = self._rows.setdefault(curves_every, {})
        rows[self._publish(pack, tables, curves_every)] = sum(table.num_rows for table in tables.values() if table)
        if names := due(rows):
            merged = merge(open_snapshot(self._place).only(names))
            rows[merged] = sum(rows.pop(name) for name in names)

    def take_out_failed(self) -> None:
        """Removes the rows of failed trainings, so that these can run again. Idempotent.

        The rows are first written to `set_aside/failed-*.json`, so a crash loses none; then fragments without them
        replace the old ones, as in a merge.
        """
        self.confirm()
        snapshot = open_snapshot(self._place)
        failed = {
            name: rows
            for name in snapshot.files["trainings"]
            if (rows := snapshot.only([name]).read("trainings", filter=IS_FAILED)).num_rows
        }
        if failed:
            rows = [
                {column: value for column, value in row.items() if value is not None}
                for row in pa.concat_tables(failed.values(), promote_options="default").to_pylist()
            ]
            text = json.dumps(rows, indent=1, default=str)
            name = hashlib.sha256(text.encode()).hexdigest()[:12]
            write_text(self._place, f"{ASIDE}/failed-{name}.json", text)
            for names in snapshot.only(failed).by_thinning().values():
                merge(snapshot.only(names), leave_out=IS_FAILED)
        self._rows = _mergeable(open_snapshot(self._place))

    def _publish(self, pack: str, tables: Mapping[str, pa.Table | None], curves_every: int) -> str:
        contents = {}
        for table, schema in self._schemas.items():
            rows = tables[table]
            rows = schema.empty_table() if rows is None else in_order(conform(rows, schema), SORT_KEYS[table])
            contents[table] = schema, rows.combine_chunks().to_batches(max_chunksize=ROW_GROUP_ROWS)
        self.confirm()
        return publish(self._place, pack, contents, replace(self._stamp, curves_every=curves_every))

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_sweep(self, snapshot: Snapshot) -> None:
        for name, file in snapshot.files["trainings"].items():
            if file.stamp.spec_sha256 != self._stamp.spec_sha256:
                given = f"rows of another sweep, with the spec hash {file.stamp.spec_sha256[:12]}"
                expected = f"rows of this sweep, with the spec hash {self._stamp.spec_sha256[:12]}"
                fix = "choose a directory that contains no sweep yet"
                raise UserError(str(file_of(self._place, "trainings", name)), given=given, expected=expected, fix=fix)


def _mergeable(snapshot: Snapshot, without: Collection[str] = ()) -> dict[int, dict[str, int]]:
    rows = snapshot.rows()
    return {
        every: {name: rows[name] for name in names if name not in without}
        for every, names in snapshot.by_thinning().items()
    }
