"""Output of both kinds of preparation: a file that is written atomically, and a table of how many rows were used."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich import box
from rich.table import Table

from attnsweep.orchestrator.storage.output_file import check_output, writing_file
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.prepared_files import Format


def check_out(out: Path, kind: Format[Any]) -> None:
    """Checks that the prepared corpus can be written to a path. Does not touch the path.

    Raises:
        UserError: If its folder cannot be written, or the path holds a file of another kind.
    """
    check_output(out)
    if out.exists() and not kind.is_at(out):
        raise UserError(
            "--out",
            given=str(out),
            expected=f"the path of a new file, or of a {kind.noun} that may be overwritten",
            fix="choose another path",
        )


def write(table: pa.Table, out: Path) -> None:
    """Writes a table to a Parquet file: durably under a temporary name, then by an atomic rename.

    Raises:
        UserError: If the file cannot be written.
    """
    with writing_file(out) as path:
        pq.write_table(table, path, compression="zstd")


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def rows_table(rows: int, dropped: Mapping[str, int], kept: int) -> Table:
    """Makes a table for the screen: the number of rows of a file that were used, and why the others were dropped."""
    grid = Table(box=box.SIMPLE_HEAD)
    grid.add_column("rows")
    grid.add_column(f"{rows:,}", justify="right")
    for reason, count in dropped.items():
        grid.add_row(f"dropped: {reason.replace('_', ' ')}", f"{count:,}")
    grid.add_row("kept", f"{kept:,}")
    return grid
