"""Reads columns of text from a TSV, a Parquet file or a plain text. Bytes that are not UTF-8 become U+FFFD."""

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_STRUCT = "translation"
"""The column of Hugging Face's translation data sets (opus_books and others): a struct with a field per language."""
_ACCEPTED = "parallel sentences: a TSV with a header line (or its .gz), or Parquet"
_ACCEPTED_ROWS = "a plain text, a TSV with a header line and --column (or their .gz), or Parquet"


@dataclass(frozen=True, slots=True)
class Columns:
    """Texts by column, all of one length; `n_wrong_fields` rows had more or fewer fields than the header."""

    names: tuple[str, ...]
    texts: list[list[str]]
    n_wrong_fields: int = 0


_File: TypeAlias = tuple[list[str], Callable[[tuple[str, ...]], Columns]]
"""The names of the text columns, and a function that reads some of them."""


def read_pairs(path: Path, source: str | None, target: str | None) -> Columns:
    """Two columns, by default the first two. The format follows from the content."""
    with _reading(path, _ACCEPTED):
        names, read = _parquet(path) if _begins(path, _PARQUET) else _tsv(path)
        if len(names) < 2:
            given, fix = f"{path}, whose columns of text are {', '.join(names) or 'none'}", "separate columns by tabs"
            raise UserError("FILE", given=given, expected=f"two columns of {_ACCEPTED}", fix=fix)
        first = source or next(name for name in names if name != target)
        second = target or next(name for name in names if name != first)
        for flag, name, others in (("--source", first, ()), ("--target", second, (first,))):
            _check_column(flag, name, [each for each in names if each not in others])
        return read((first, second))


def read_rows(path: Path, column: str | None) -> Columns:
    """One column, by default the first of a Parquet file, or else the lines of a plain text."""
    with _reading(path, _ACCEPTED_ROWS):
        if column is None and not _begins(path, _PARQUET):
            return Columns(("",), [_lines(path)])
        names, read = _parquet(path) if _begins(path, _PARQUET) else _tsv(path)
        chosen = column or (names or [""])[0]
        _check_column("--column", chosen, names)
        return read((chosen,))


def _check_column(flag: str, name: str, names: Sequence[str]) -> None:
    if names.count(name) != 1:
        known = ", ".join(names) or "none"
        raise UserError(flag, given=name, expected=f"a column of text, out of {known}", fix="give one of them, once")


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


def _lines(path: Path) -> list[str]:
    with gzip.open(path) if _begins(path, _GZIP) else path.open("rb") as stream:
        return stream.read().decode("utf-8-sig", errors="replace").removesuffix("\n").split("\n")


def _tsv(path: Path) -> _File:
    header, *lines = _lines(path)
    names = header.removesuffix("\r").split("\t")

    def read(chosen: tuple[str, ...]) -> Columns:
        rows = [row for line in lines if len(row := line.split("\t")) == len(names)]
        return Columns(chosen, [[row[names.index(name)] for row in rows] for name in chosen], len(lines) - len(rows))

    return names, read


def _parquet(path: Path) -> _File:
    schema = pq.read_schema(path)
    is_struct = _STRUCT in schema.names and pa.types.is_struct(schema.field(_STRUCT).type)
    fields = list(schema.field(_STRUCT).type if is_struct else schema)

    def read(chosen: tuple[str, ...]) -> Columns:
        table = pq.read_table(path, columns=[_STRUCT] if is_struct else list(chosen), partitioning=None)
        columns = (pc.struct_field(table[_STRUCT], name) if is_struct else table[name] for name in chosen)
        return Columns(chosen, [[text or "" for text in column.to_pylist()] for column in columns])

    return [field.name for field in fields if _is_text(field.type)], read


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return plain in (pa.string(), pa.large_string(), pa.string_view())
