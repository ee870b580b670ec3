"""Tables of analyses: made, shown, written as JSON."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from attnsweep.orchestrator.analysis.labels import clipped
from attnsweep.orchestrator.terminal import PlainConsole, plain

Row: TypeAlias = dict[str, Any]
Columns: TypeAlias = Mapping[str, Any]
"""By name: `str`, `int`, `float` or an Arrow type."""

_MAX_ROWS, _CELL_CHARACTERS, _MAX_WIDTH = 100, 60, 1000
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64()}


def table_of(columns: Columns, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Also without rows, or where a column has only nulls."""
    schema = pa.schema([(name, _TYPES.get(kind, kind)) for name, kind in columns.items()])
    return pa.Table.from_pylist([{name: row[name] for name in columns} for row in rows], schema)


def show(table: pa.Table, console: Console | None = None) -> None:
    """Prints the first 100 rows: floats with three digits, lists by their lengths, no column of nulls."""
    console = console or PlainConsole()
    kept = [name for name in table.column_names if table[name].null_count < table.num_rows]
    shown = Table(*(Column(Text(plain(name)), no_wrap=True) for name in kept), box=None, header_style="bold")
    for row in table.slice(0, _MAX_ROWS).to_pylist():
        shown.add_row(*(Text(_cell(row[name])) for name in kept))
    if table.num_rows > _MAX_ROWS:
        shown.caption = f"the first {_MAX_ROWS} of {table.num_rows:,} rows"
    # Wider than the terminal if need be: wrapped cells could not be read.
    needed = console.measure(shown, options=console.options.update_width(_MAX_WIDTH)).maximum
    console.width = max(console.width, needed)
    console.print(shown)


def to_json(value: object) -> str:
    """One line: a table as a list of its rows, a record as an object; numbers that are not finite are null."""
    return json.dumps(as_json(value), allow_nan=False)


def as_json(value: Any) -> Any:
    """As `to_json`, before it becomes a text."""
    match value:
        case pa.Table():
            return as_json(value.to_pylist())
        case Mapping():
            return {key: as_json(item) for key, item in value.items()}
        case tuple() | list():
            return [as_json(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    if dataclasses.is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:.3g}"
        case list():
            return f"[{len(value)}]"
    return plain(clipped(value, _CELL_CHARACTERS))
