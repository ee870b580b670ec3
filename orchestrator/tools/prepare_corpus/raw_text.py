"""Reads columns of text from a file, as bytes. Whether they are valid text is checked later, row by row.

pyarrow's CSV reader is not used: it fails on a row that has both a wrong number of fields and a byte that is not UTF-8,
and on a line longer than its block.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STRUCT = "translation"
"""The column of Hugging Face's translation data sets (opus_books and others): a struct with a field per language."""
_ACCEPTED = "parallel sentences: a TSV with a header line (or its .gz), or Parquet"
_ACCEPTED_ROWS = "a plain text, a TSV with a header line and --column (or their .gz), or Parquet"


@dataclass(frozen=True, slots=True)
class RawText:
    """Columns of text as bytes that are not decoded yet, all with the same number of rows.

    Attributes:
        names: The names of the columns; empty for the lines of a plain text.
        columns: The texts of each column, (n_texts,) large_binary; null where the file has no value.
        n_wrong_fields: The number of rows left out because their number of fields differs from the header's.
    """

    names: tuple[str, ...]
    columns: list[pa.LargeBinaryArray]
    n_wrong_fields: int = 0


def read_pairs(path: Path, source: str | None, target: str | None) -> RawText:
    """Reads two columns as sentence pairs. The format is recognized by the content, not by the name.

    Args:
        path: TSV, gzipped TSV or Parquet, with text columns or with a struct `translation` of languages.
        source, target: Names of columns or languages; by default the first two.

    Raises:
        UserError: If the file has another format, or lacks the columns.
    """
    with _reading(path, _ACCEPTED):
        if _begins(path, _PARQUET):
            columns, read = _parquet_columns(path)
            fix = f"give the text from which this file was made (columns {', '.join(pq.read_schema(path).names)})"
        else:
            columns, read = _tsv_columns(path)
            fix = "separate the columns by tabs, and name them in the first line"
        chosen = _choose(path, columns, source, target, fix)
        return read(chosen)


def read_rows(path: Path, column: str | None) -> RawText:
    """Reads one column, or the lines of a plain text.

    Args:
        path: Parquet, or with `column` a TSV with a header line, or else plain text; the latter two also gzipped.
        column: The name of the column; by default the first column of text in Parquet, else the lines of a plain text.

    Raises:
        UserError: If the file has another format, or lacks the column.
    """
    with _reading(path, _ACCEPTED_ROWS):
        if column is None and not _begins(path, _PARQUET):
            return RawText(("",), [_lines(_content(path))])
        columns, read = _parquet_columns(path) if _begins(path, _PARQUET) else _tsv_columns(path)
        if column is None and columns:
            column = columns[0]
        if column is None or columns.count(column) != 1:
            expected = f"the name of a text column, out of {', '.join(columns) or 'none'}"
            raise UserError("--column", given=column, expected=expected, fix=f"see the columns of {path}")
        return read((column,))


@contextmanager
def _reading(path: Path, accepted: str) -> Iterator[None]:
    given_file(path, "FILE", accepted)
    try:
        yield
    except (OSError, EOFError, zlib.error, pa.ArrowInvalid) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError("FILE", given=str(path), expected=accepted, fix=f"check the path ({reason})") from error


def _begins(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _content(path: Path) -> bytes:
    with gzip.open(path) if _begins(path, _GZIP) else path.open("rb") as stream:
        return stream.read().removeprefix(_BYTE_ORDER_MARK)


_Columns: TypeAlias = tuple[list[str], Callable[[tuple[str, ...]], RawText]]
"""The names of a file's text columns, and a function that reads some of them by name."""


def _tsv_columns(path: Path) -> _Columns:
    header, _, body = _content(path).partition(b"\n")
    try:
        names = header.decode().removesuffix("\r").split("\t")
    except UnicodeDecodeError as error:
        fix = f"save the file in UTF-8 (the error in its header line: {error.reason})"
        raise UserError("FILE", given=str(path), expected=_ACCEPTED, fix=fix) from error

    def read(chosen: tuple[str, ...]) -> RawText:
        fields = pc.split_pattern(_lines(body), "\t")
        complete = fields.filter(pc.equal(pc.list_value_length(fields), len(names)))
        columns = [pc.list_element(complete, names.index(name)) for name in chosen]
        return RawText(chosen, columns, len(fields) - len(complete))

    return names, read


def _lines(body: bytes) -> pa.LargeBinaryArray:
    """With their line ends, which are removed later."""
    ends = np.flatnonzero(np.frombuffer(body, np.uint8) == ord("\n")) + 1
    if body and not body.endswith(b"\n"):
        ends = np.append(ends, len(body))
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(body)]
    )


def _parquet_columns(path: Path) -> _Columns:
    schema = pq.read_schema(path)
    is_struct = _STRUCT in schema.names and pa.types.is_struct(schema.field(_STRUCT).type)
    fields = list(schema.field(_STRUCT).type if is_struct else schema)

    def read(chosen: tuple[str, ...]) -> RawText:
        table = pq.read_table(path, columns=[_STRUCT] if is_struct else list(chosen), partitioning=None)
        if is_struct:
            structs = table[_STRUCT].combine_chunks()
            return RawText(chosen, [_as_bytes(pc.struct_field(structs, name)) for name in chosen])
        return RawText(chosen, [_as_bytes(table[name].combine_chunks()) for name in chosen])

    return [field.name for field in fields if _is_text(field.type)], read


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return plain in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary())


def _as_bytes(column: pa.Array) -> pa.LargeBinaryArray:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == pa.string_view():
        column = column.cast(pa.large_string())
    return column.cast(pa.large_binary())


def _choose(path: Path, columns: Sequence[str], source: str | None, target: str | None, fix: str) -> tuple[str, str]:
    known_columns = ", ".join(columns)
    if len(columns) < 2:
        given = f"the file {path}, whose text columns are {', '.join(map(repr, columns)) or 'none'}"
        expected = "a file with at least two columns of text: a TSV with a header line (or its .gz), or Parquet"
        raise UserError("FILE", given=given, expected=expected, fix=fix)
    for flag, name in (("--source", source), ("--target", target)):
        if name is not None and columns.count(name) != 1:
            expected = f"the name of a column, out of {known_columns}"
            raise UserError(flag, given=name, expected=expected, fix=f"see the columns of {path}")
    first = source if source is not None else next(name for name in columns if name != target)
    second = target if target is not None else next((name for name in columns if name != first), first)
    if first == second:
        expected = f"another column than that of --source, out of {known_columns}"
        raise UserError("--target", given=second, expected=expected, fix="give --source and --target different columns")
    return first, second
