"""Tables are shown without their control characters, and written as JSON without what is not finite."""

import io
import json
from dataclasses import dataclass

import pyarrow as pa

from attnsweep import show, to_json
from attnsweep.orchestrator.analysis.tables import table_of
from attnsweep.orchestrator.terminal import PlainConsole

HOSTILE = "<script>\x1b[2J [red]"
TABLE = pa.table({HOSTILE: [HOSTILE, "b"], "share": [0.123456, float("inf")], "curve": [[1, 2], []]})


@dataclass(frozen=True)
class _Record:
    name: str
    table: pa.Table


def test_a_table_is_shown_plainly() -> None:
    shown = io.StringIO()
    show(TABLE.append_column("empty", pa.nulls(2)), PlainConsole(file=shown, width=20))
    heads, first, _ = shown.getvalue().splitlines()
    assert "\x1b" not in shown.getvalue()
    assert "[red]" in heads
    assert "empty" not in heads
    assert first.split()[-2:] == ["0.123", "[2]"]


def test_json_of_records_and_tables() -> None:
    found = json.loads(to_json(_Record("a", TABLE.drop_columns(HOSTILE))))
    assert found == {"name": "a", "table": [{"share": 0.123456, "curve": [1, 2]}, {"share": None, "curve": []}]}


def test_a_table_without_rows_has_its_types() -> None:
    found = table_of({"group": str, "n": int, "share": float}, [])
    assert (found.num_rows, found.schema.types) == (0, [pa.string(), pa.int64(), pa.float64()])
