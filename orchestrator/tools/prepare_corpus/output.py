"""Writing a prepared file, atomically: the whole file appears at once, or not at all."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from attnsweep.orchestrator.storage.output_file import check_output, writing_file
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.prepared_files import Format


def check_out(out: Path, kind: Format[Any]) -> None:
    """Checks that a prepared file may be written to a path, without touching it.

    Raises:
        UserError: If its folder cannot be written, or the path holds a file of another kind.
    """
    check_output(out)
    if out.exists() and not kind.is_at(out):
        raise UserError(
            "--out", given=str(out), expected=f"a new file, or a {kind.noun} to replace", fix="choose another"
        )


def write(table: pa.Table, out: Path) -> None:
    """Writes a file; its content is on the disk before the file gets its name.

    Raises:
        UserError: If the file cannot be written.
    """
    with writing_file(out) as path:
        pq.write_table(table, path, compression="zstd")
