"""A user's text as the numbers of its tokens, in a training and a held-out part, and the file that holds it.

The file is what `attnsweep prepare-corpus --unit` writes: Parquet, with the column `tokens`, lists of int32 (a row's
words or characters), and the column `part`. The vocabulary, the format's version and the digest are its metadata.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file

SPECIALS = ("<end>", "<unk>")
END, UNK = range(2)
"""The token at the end of each row, and the one in place of rare words or characters."""

PART_NAMES = ("train", "held_out")
SCHEMA_VERSION = 1
VERSION_KEY, WORDS_KEY, DIGEST_KEY = "text_schema_version", "words", "digest"
"""Keys of the metadata: the format's version, the vocabulary, `Text.digest`."""

SCHEMA = pa.schema([pa.field("tokens", pa.list_(pa.int32())), pa.field("part", pa.dictionary(pa.int8(), pa.string()))])
_PREPARE = "prepare it: attnsweep prepare-corpus FILE --unit characters --out TEXT.parquet"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Text:
    """A text in two parts.

    Attributes:
        words: (V,) `SPECIALS`, then words or characters by falling frequency in the training part.
        train, held_out: int64 tokens, the part's rows one after the other in the file's order, each ended by `END`.
        digest: Equal for two texts if and only if all other attributes are equal.
    """

    words: tuple[str, ...]
    train: NDArray[np.int64]
    held_out: NDArray[np.int64]
    digest: str


def make_text(words: tuple[str, ...], rows: pa.ListArray, is_held_out: NDArray[np.bool_]) -> Text:
    """A text of N rows.

    Args:
        words: The vocabulary.
        rows: (N,) lists of int32, indices into the vocabulary.
        is_held_out: (N,) whether a row is held out.
    """
    train, held_out = (_joined(rows.filter(pa.array(mask))) for mask in (~is_held_out, is_held_out))
    head = json.dumps([words, len(train), len(held_out)]).encode()
    digest = hashlib.blake2b(digest_size=16)
    for piece in (f"{len(head)} ".encode(), head, train.astype("<i8").tobytes(), held_out.astype("<i8").tobytes()):
        digest.update(piece)
    return Text(words=words, train=train, held_out=held_out, digest=digest.hexdigest())


def is_text(path: Path) -> bool:
    """Whether a file's metadata says that it is a prepared text."""
    try:
        return VERSION_KEY.encode() in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowInvalid):
        return False


def read_text(path: str | Path) -> Text:
    """Reads a prepared text; cached per process until the file changes.

    Raises:
        UserError: If there is no such file, it is not a prepared text, or it was changed after its preparation.
    """
    file = given_file(Path(path), "corpus", "a prepared text")
    state = file.stat()
    return _read(str(file), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _read(path: str, mtime_ns: int, size: int) -> Text:
    del mtime_ns, size
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowInvalid) as error:
        raise _refused(path) from error
    metadata = table.schema.metadata or {}
    if metadata.get(VERSION_KEY.encode()) != str(SCHEMA_VERSION).encode():
        raise _refused(path)
    try:
        text = _assembled(table, json.loads(metadata[WORDS_KEY.encode()]))
        recorded = metadata[DIGEST_KEY.encode()].decode()
    except (KeyError, TypeError, ValueError, pa.ArrowInvalid) as error:
        raise _refused(path) from error
    if text.digest != recorded:
        raise UserError(
            "corpus",
            given=f"{path}, digest {text.digest}",
            expected=f"the digest it was written with, {recorded}",
            fix="it was changed since: prepare it again",
        )
    return text


def _assembled(table: pa.Table, words: list[str]) -> Text:
    """The text that a file's table holds.

    Raises:
        ValueError: If the table is not that of a text; Arrow's own errors are `ValueError`s too.
    """
    table = table.select(SCHEMA.names).cast(SCHEMA)
    rows = table["tokens"].combine_chunks()
    numbers = rows.flatten()
    if rows.null_count or numbers.null_count or tuple(words[: len(SPECIALS)]) != SPECIALS:
        raise ValueError("a row or a token is missing")
    if len(numbers) and not UNK <= pc.min(numbers).as_py() <= pc.max(numbers).as_py() < len(words):
        raise ValueError("a number is no token's")
    part = pc.index_in(table["part"].cast(pa.string()).combine_chunks(), pa.array(PART_NAMES))
    return make_text(tuple(words), rows, part.to_numpy(zero_copy_only=True) == PART_NAMES.index("held_out"))


def _refused(path: str) -> UserError:
    return UserError("corpus", given=path, expected="a text of one column, prepared for task=text", fix=_PREPARE)


def _joined(rows: pa.ListArray) -> NDArray[np.int64]:
    """The rows one after the other, each with `END` behind it."""
    lengths = rows.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    tokens = np.full(int(lengths.sum()) + len(lengths), END, dtype=np.int64)
    is_end = np.zeros(len(tokens), dtype=bool)
    is_end[np.cumsum(lengths + 1) - 1] = True
    tokens[~is_end] = rows.flatten().to_numpy()
    return tokens
