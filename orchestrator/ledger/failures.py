"""Takes the rows of failed trainings out of a ledger, so that they are trained again."""

import hashlib
import json

import pyarrow as pa
import pyarrow.compute as pc

from attnsweep.orchestrator.ledger.compaction import merge
from attnsweep.orchestrator.ledger.fragments import Snapshot, open_snapshot
from attnsweep.orchestrator.storage.place import ASIDE, Place

IS_FAILED = pc.field("outcome") == "failed"


def take_out_failed(place: Place) -> None:
    """Removes the rows of failed trainings from the ledger. The caller must hold the sweep's lock.

    The rows are first written to `set_aside/failed-*.json`. The fragments that held them are replaced as in a merge: a
    crash leaves each row in the ledger, or out of it and in that file. Idempotent.
    """
    snapshot = open_snapshot(place)
    failed = {name: rows for name in snapshot.rows() if (rows := _failed_rows(snapshot, name)).num_rows}
    if not failed:
        return
    rows = [
        {column: value for column, value in row.items() if value is not None}
        for row in pa.concat_tables(failed.values(), promote_options="default").to_pylist()
    ]
    text = json.dumps(rows, indent=1, default=str)
    place.put_text(f"{ASIDE}/failed-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json", text)
    for names in snapshot.only(failed).by_thinning().values():
        merge(place, names, leave_out=IS_FAILED)


def _failed_rows(snapshot: Snapshot, name: str) -> pa.Table:
    return snapshot.only([name]).dataset("trainings").to_table(filter=IS_FAILED)
