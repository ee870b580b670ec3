import csv
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb.sqltypes import DuckDBPyType
from rich import box
from rich.table import Table
from rich.text import Text

from attnsweep.orchestrator.ledger.reader import Ledger, reading
from attnsweep.orchestrator.ledger.views import identifier
from attnsweep.orchestrator.storage.output_file import writing_file
from attnsweep.orchestrator.terminal import PlainConsole, plain
from attnsweep.workloads.errors import UserError

TABLE_ROWS = 200
"""That a table on the terminal shows."""
ANSWER_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
"""A larger answer is refused: DuckDB's memory limit does not count it."""
_ROWS_AT_ONCE = 100_000
_QUOTED_CHARACTERS = 400
"""Of a message of DuckDB, which may repeat the whole query."""
_READING = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI}
"""Statements that return rows; a PIVOT is MULTI."""
_AS_TEXT = {"interval", "union", "bit", "bignum", "uhugeint", "time with time zone", "variant", "geometry"}
"""DuckDB types that Arrow would change or Parquet lacks; their values become text, as DuckDB prints them."""


def query_all(ledgers: Sequence[Ledger], sql: str) -> pa.Table:
    """As `answer`, over several sweeps. Raises UserError also for a sweep given twice."""
    with reading(ledgers) as connection:
        return answer(connection, sql)


def answer(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Runs one SQL query on a ledger's views.

    Raises:
        UserError: If `sql` is no query, or several; if DuckDB refuses it; if the answer is too large.
    """
    try:
        statements = connection.extract_statements(sql)
        if [statement.type in _READING for statement in statements] != [True]:
            raise _refused(sql, "begin the query with SELECT or FROM, and give one query at a time")
        relation = connection.sql(sql)
        keeps_type = [_AS_TEXT.isdisjoint(_kinds(column_type)) for column_type in relation.types]
        return _fetched(relation if all(keeps_type) else relation.project(_columns(relation.columns, keeps_type)), sql)
    except (duckdb.Error, UnicodeEncodeError) as error:
        message = " ".join(str(error).split("\n\n")[0].split())
        raise _refused(sql, f"correct the query; DuckDB's error is: {message[:_QUOTED_CHARACTERS]}") from error


def _kinds(kind: DuckDBPyType) -> Iterator[str]:
    """Its own, and those of the types inside it."""
    yield kind.id
    if kind.id in ("list", "array", "struct", "map"):
        for _, inner in kind.children:
            yield from _kinds(inner) if isinstance(inner, DuckDBPyType) else ()


def _columns(names: Sequence[str], keeps_type: Sequence[bool]) -> str:
    # By number, because an answer may have two columns of one name.
    numbered = enumerate(zip(names, keeps_type, strict=True), 1)
    return ", ".join(f"#{n}{'' if keeps else '::VARCHAR'} AS {identifier(name)}" for n, (name, keeps) in numbered)


def _fetched(relation: duckdb.DuckDBPyRelation, sql: str) -> pa.Table:
    batches, size = [], 0
    with relation.to_arrow_reader(_ROWS_AT_ONCE) as reader:
        for batch in reader:
            size += batch.nbytes
            if size > ANSWER_BYTES:
                raise _refused(
                    sql,
                    f"select fewer rows or aggregate them, because the answer is larger than {ANSWER_BYTES:,} bytes",
                )
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


def render(table: pa.Table, format: str, out: Path | None) -> None:
    """Writes `table` (the first rows), `csv`, `json` (a list of records) or `parquet`; without `out` to stdout.

    Raises:
        UserError: For Parquet without a file, JSON of two columns with one name, or a file that cannot be written.
    """
    names = table.column_names
    repeated = next((name for n, name in enumerate(names) if name in names[:n]), None)
    if format == "json" and repeated is not None:
        expected = "columns with different names, which --format json needs"
        fix = "rename one of the columns with AS, or use --format csv"
        raise UserError("SQL", given=f"an answer with two columns named {repeated}", expected=expected, fix=fix)
    if format == "parquet" and out is None:
        raise UserError(
            "--out", given=None, expected="a file name, which --format parquet needs", fix="add --out FILE.parquet"
        )
    if out is None:
        _TEXT_FORMATS[format](table, sys.stdout)
        return
    with writing_file(out) as path:
        if format == "parquet":
            pq.write_table(table, path, compression="zstd")
        else:
            with path.open("w", newline="", encoding="utf-8") as file:
                _TEXT_FORMATS[format](table, file)


def _write_table(table: pa.Table, file: TextIO) -> None:
    grid = Table(box=box.SIMPLE_HEAD)
    for name, kind in zip(table.schema.names, table.schema.types, strict=True):
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        grid.add_column(Text(plain(name)), justify="right" if is_number else "left", no_wrap=True)
    for record in _records(table.slice(0, TABLE_ROWS)):
        grid.add_row(*(Text(plain(_cell(value))) for value in record))
    # A file or pipe has no width, so the table may be as wide as needed.
    console = PlainConsole(file=file, width=None if file.isatty() else sys.maxsize)
    console.print(grid)
    if table.num_rows > TABLE_ROWS:
        console.print(f"{table.num_rows - TABLE_ROWS} more rows; --format csv shows all")


def _write_csv(table: pa.Table, file: TextIO) -> None:
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(table.column_names)
    rows.writerows(_records(table))


def _write_json(table: pa.Table, file: TextIO) -> None:
    file.write("[")
    for number, record in enumerate(_records(table)):
        named = dict(zip(table.column_names, record, strict=True))
        file.write((",\n " if number else "") + json.dumps(named, allow_nan=False, ensure_ascii=False))
    file.write("]\n")


_TEXT_FORMATS: dict[str, Callable[[pa.Table, TextIO], None]] = {
    "table": _write_table,
    "csv": _write_csv,
    "json": _write_json,
}


def _records(table: pa.Table) -> Iterator[list[Any]]:
    for batch in table.to_batches(max_chunksize=10_000):
        try:
            columns = [[_plain(value) for value in column.to_pylist()] for column in batch.columns]
        except (OverflowError, ValueError) as error:
            expected = "dates of the years 1 to 9999, which Python can represent"
            raise UserError("SQL", given=str(error), expected=expected, fix="cast the column to VARCHAR") from error
        yield from (list(record) for record in zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    """For all formats but Parquet: times to ISO 8601, numbers that are not finite to `None`."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
    return str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _refused(sql: str, fix: str) -> UserError:
    expected = "a query over the views trainings, curves, heads, trials and the table outcomes"
    return UserError("SQL", given=" ".join(sql.split()), expected=expected, fix=fix)
