"""From a file of parallel text to two columns of bytes, whose content is checked later, row by row.

pyarrow's CSV reader is not used: it fails on a row that has both a wrong number of fields and a byte that is not UTF-8,
and on a line longer than its block.
"""

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, kw_only=True, slots=True)
class RawPairs:
    """N pairs of sentences, as bytes.

    Attributes:
        names: The names of the two columns.
        source, target: (N,) large_binary; null where the file has no value.
        n_wrong_fields: The number of further rows, whose number of fields differs from the header's.
    """

    names: tuple[str, str]
    source: pa.LargeBinaryArray
    target: pa.LargeBinaryArray
    n_wrong_fields: int = 0


def read_pairs(path: Path, source: str | None, target: str | None) -> RawPairs:
    """Reads two columns of a file. The format is recognized by the content, not by the file's name.

    Args:
        path: TSV, gzipped TSV or Parquet, with text columns or with a struct `translation` of languages.
        source, target: Names of columns or languages; by default the first two.

    Raises:
        UserError: If the file has another format, or lacks the columns.
    """
    given_file(path, "FILE", _ACCEPTED)
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic == _PARQUET:
            return _read_parquet(path, source, target)
        with gzip.open(path) if magic.startswith(_GZIP) else path.open("rb") as stream:
            return _read_tsv(path, stream.read(), source, target)
    except (OSError, EOFError, zlib.error, pa.ArrowInvalid) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError("FILE", given=str(path), expected=_ACCEPTED, fix=f"check the path ({reason})") from error


def _read_tsv(path: Path, content: bytes, source: str | None, target: str | None) -> RawPairs:
    header, _, body = content.removeprefix(_BYTE_ORDER_MARK).partition(b"\n")
    try:
        names = header.decode().removesuffix("\r").split("\t")
    except UnicodeDecodeError as error:
        raise UserError(
            "FILE", given=str(path), expected=_ACCEPTED, fix=f"write it in UTF-8 (its header line: {error.reason})"
        ) from error
    chosen = _choose(path, names, source, target, "separate the columns by tabs, and name them in the first line")
    fields = pc.split_pattern(_lines(body), "\t")
    is_whole = pc.equal(pc.list_value_length(fields), len(names))
    whole = fields.filter(is_whole)
    columns = [pc.list_element(whole, names.index(name)) for name in chosen]
    return RawPairs(names=chosen, source=columns[0], target=columns[1], n_wrong_fields=len(fields) - len(whole))


def _lines(body: bytes) -> pa.LargeBinaryArray:
    """The lines of a text, each with its line end, which is removed when fields are trimmed."""
    ends = np.flatnonzero(np.frombuffer(body, np.uint8) == ord("\n")) + 1
    if body and not body.endswith(b"\n"):
        ends = np.append(ends, len(body))
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(body)]
    )


def _read_parquet(path: Path, source: str | None, target: str | None) -> RawPairs:
    schema = pq.read_schema(path)
    is_struct = _STRUCT in schema.names and pa.types.is_struct(schema.field(_STRUCT).type)
    fields = list(schema.field(_STRUCT).type if is_struct else schema)
    there = [field.name for field in fields if _is_text(field.type)]
    chosen = _choose(
        path, there, source, target, f"give the text that it was made of (columns {', '.join(schema.names)})"
    )
    if is_struct:
        structs = pq.read_table(path, columns=[_STRUCT], partitioning=None)[_STRUCT].combine_chunks()
        columns = [pc.struct_field(structs, name) for name in chosen]
    else:
        table = pq.read_table(path, columns=list(chosen), partitioning=None)
        columns = [table[name].combine_chunks() for name in chosen]
    first, second = (_as_bytes(column) for column in columns)
    return RawPairs(names=chosen, source=first, target=second)


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return plain in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary())


def _as_bytes(column: pa.Array) -> pa.LargeBinaryArray:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == pa.string_view():
        column = column.cast(pa.large_string())
    return column.cast(pa.large_binary())


def _choose(path: Path, there: Sequence[str], source: str | None, target: str | None, fix: str) -> tuple[str, str]:
    if len(there) < 2:
        raise UserError(
            "FILE",
            given=f"{path}, text columns {', '.join(map(repr, there)) or 'none'}",
            expected=f"{_ACCEPTED}, with two columns of text",
            fix=fix,
        )
    for flag, name in (("--source", source), ("--target", target)):
        if name is not None and there.count(name) != 1:
            raise UserError(
                flag,
                given=name,
                expected=f"the name of one column among {', '.join(there)}",
                fix=f"see the columns of {path}",
            )
    first = source if source is not None else next(name for name in there if name != target)
    second = target if target is not None else next((name for name in there if name != first), first)
    if first == second:
        raise UserError(
            "--target",
            given=second,
            expected=f"a column other than the source, among {', '.join(there)}",
            fix="give --source and --target two names",
        )
    return first, second
