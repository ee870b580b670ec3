"""A user's text as token numbers, and the Parquet file that `attnsweep prepare-corpus --unit` writes, whose column
`tokens` has the words or characters of each row."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.workloads.prepared_files import Format, checked_rows, digest_of, part_numbers

SPECIALS = ("<end>", "<unk>")
END, UNK = range(2)
"""The numbers of the tokens for the end of each row, and for rare words or characters."""

PART_NAMES = ("train", "held_out")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Text:
    """A text as token numbers.

    Attributes:
        words: `SPECIALS`, then words or characters by falling frequency in the training part.
        train, held_out: The tokens of each part, rows in the file's order, each ended by `END`.
        digest: A hash of the others.
    """

    words: tuple[str, ...]
    train: NDArray[np.int64]
    held_out: NDArray[np.int64]
    digest: str


def make_text(words: tuple[str, ...], rows: pa.ListArray, is_held_out: NDArray[np.bool_]) -> Text:
    """From rows of word numbers, lists of int32; `is_held_out` is (n_rows,)."""
    train, held_out = (_joined(rows.filter(pa.array(mask))) for mask in (~is_held_out, is_held_out))
    return Text(words=words, train=train, held_out=held_out, digest=digest_of(words, train, held_out))


def _assembled(table: pa.Table, words: list[str]) -> Text:
    rows = checked_rows(table, "tokens", words, SPECIALS)
    return make_text(tuple(words), rows, part_numbers(table, PART_NAMES) == PART_NAMES.index("held_out"))


TEXT_FILE = Format(
    noun="prepared text",
    prepare="attnsweep prepare-corpus FILE --unit characters --out TEXT.parquet",
    version_key="text_schema_version",
    columns=("tokens",),
    part_names=PART_NAMES,
    assembled=_assembled,
)


def read_text(path: str | Path) -> Text:
    """Reads what `attnsweep prepare-corpus --unit` wrote; refuses other files, and one changed since."""
    return TEXT_FILE.read(path)


def _joined(rows: pa.ListArray) -> NDArray[np.int64]:
    """The rows as one sequence, with `END` after each."""
    lengths = rows.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    tokens = np.full(int(lengths.sum()) + len(lengths), END, dtype=np.int64)
    is_end = np.zeros(len(tokens), dtype=bool)
    is_end[np.cumsum(lengths + 1) - 1] = True
    tokens[~is_end] = rows.flatten().to_numpy()
    return tokens
