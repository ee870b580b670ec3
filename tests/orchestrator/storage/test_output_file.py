"""`--out`: the old file stays until the new one is complete, and only regular files are replaced."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from attnsweep.orchestrator.ledger.query import render
from attnsweep.orchestrator.report.page import write_report
from attnsweep.orchestrator.storage.output_file import check_output, writing_file
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

TABLE = pa.table({"a": [1, 2]})
UNWRITABLE = pa.table({"a": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
"""A value of a type that Parquet lacks: pyarrow begins the file, fails and removes it."""


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_a_file_is_replaced_as_a_whole(format: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("earlier")
    render(TABLE, format, out)
    assert out.read_bytes() != b"earlier"
    assert list(tmp_path.iterdir()) == [out]


def _interrupted(out: Path) -> None:
    with writing_file(out) as path:
        path.write_text("half")
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("write", "error"),
    [(_interrupted, KeyboardInterrupt), (lambda out: render(UNWRITABLE, "parquet", out), pa.ArrowNotImplementedError)],
)
def test_a_failed_write_leaves_what_was_there(
    write: Callable[[Path], None], error: type[BaseException], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.write_text("earlier")
    with pytest.raises(error):
        write(out)
    assert out.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [out]


SPECIAL: dict[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/full"),
    "loop": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_nothing_but_a_regular_file_is_replaced(kind: str, tmp_path: Path) -> None:
    """Every command checks `--out` before it writes anything."""
    folder = tmp_path / "outs"
    folder.mkdir()
    for name in ("out", "curves.parquet"):
        SPECIAL[kind](folder / name)
    out = folder / "out"
    there = sorted(folder.iterdir())
    sweep = sweep_on_disk(tmp_path / "s", small_sweep("s", trials=1), trial_rows(0, ["solved"] * 4))
    writers: list[Callable[[], object]] = [
        lambda: check_output(out),
        *(lambda format=format: render(TABLE, format, out) for format in ("table", "csv", "json", "parquet")),
        lambda: write_report([sweep.place], out),
    ]
    reason = "Too many levels of symbolic links" if kind == "loop" else "this path is a folder, a device or a pipe"
    for write in writers:
        with pytest.raises(UserError, match=rf"^--out: got '.*', expected a file .*; choose another path \({reason}"):
            write()
    assert sorted(folder.iterdir()) == there
