"""Decides which rows of a file can be used, and which of them are held out. Axis: N row."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from attnsweep.orchestrator.tools.prepare_corpus.vocabulary import Sentences
from attnsweep.workloads.errors import UserError

_NO_TEXT = r"[\p{Cc}\x{FFFD}]"
"""Matches control characters, and the replacement character, which some program wrote for bytes it could not decode."""


class Reasons:
    """Records for each of N rows why the row is dropped: the first reason that was marked."""

    def __init__(self, n_rows: int) -> None:
        self._reasons_N = np.full(n_rows, "", dtype=object)

    def mark(self, name: str, mask: NDArray[np.bool_]) -> None:
        """Marks the rows where the mask (N,) is true as dropped for the reason `name`. An earlier reason of a row
        stays."""
        self._reasons_N[self.kept & mask] = name

    @property
    def kept(self) -> NDArray[np.bool_]:
        """A mask (N,) of the rows that no reason drops."""
        return np.asarray(self._reasons_N == "")

    def count(self, name: str) -> int:
        """Returns how many rows are dropped for the reason `name`."""
        return int((self._reasons_N == name).sum())


def read_texts(columns: list[pa.LargeBinaryArray], reasons: Reasons) -> list[pa.LargeStringArray]:
    """Decodes and trims the N texts of each column. A text that is missing or cannot be decoded becomes empty.

    Marks rows as `not_utf8` or `not_text` if that applies to any of their columns.
    """
    is_utf8 = np.logical_and.reduce([_is_utf8(column) for column in columns])
    reasons.mark("not_utf8", ~is_utf8)
    texts = [_texts(column, is_utf8) for column in columns]
    for column in texts:
        reasons.mark("not_text", pc.match_substring_regex(column, _NO_TEXT).to_numpy(zero_copy_only=False))
    return texts


def mark_duplicates(sides: list[Sentences], reasons: Reasons) -> None:
    """Marks rows with the same words as an earlier row, to be dropped."""
    rows = np.flatnonzero(reasons.kept)
    keys = np.zeros(len(rows), dtype=np.int64)
    for side in sides:
        # The combined keys of the sides are renumbered from 0 after each side, so that they fit into 64 bits.
        keys = _numbered(keys * (len(reasons.kept) + 1) + _numbered_texts(side.joined())[rows])
    _, first = np.unique(keys, return_index=True)
    is_later = np.zeros(len(reasons.kept), dtype=bool)
    is_later[rows] = True
    is_later[rows[first]] = False
    reasons.mark("duplicate", is_later)


def refuse_none(dropped: dict[str, int], kept: NDArray[np.bool_], expected: str, fix: str) -> None:
    """Raises an error if no row of a file can be used.

    Raises:
        UserError: With the reasons.
    """
    if not kept.any():
        why = in_words({name: count for name, count in dropped.items() if count})
        raise UserError(
            "FILE",
            given=f"a file of {sum(dropped.values())} rows, none of which can be used" + (f" ({why})" if why else ""),
            expected=expected,
            fix=fix,
        )


def shares(sentences: Sentences, seed: int) -> NDArray[np.float64]:
    """Returns a pseudo-random number in 0..1 for each of N sentences, which depends only on the sentence and the
    seed."""
    texts = sentences.joined().dictionary_encode()
    share = np.array([_share_of(text, seed) for text in texts.dictionary.to_pylist()])
    share_N: NDArray[np.float64] = share[texts.indices.to_numpy()]
    return share_N


def unknown_share(side: Sentences, unknown: int) -> float:
    """Returns the share of words outside the vocabulary among all words of one language."""
    return float((side.numbers.flatten().to_numpy() == unknown).mean())


def in_words(numbers: dict[str, int]) -> str:
    """Formats counts by name for a message: `not utf8 3, duplicate 12`."""
    return ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in numbers.items())


def _is_utf8(column: pa.LargeBinaryArray) -> NDArray[np.bool_]:
    try:
        column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return np.array([text is None or _decodes(text) for text in column.to_pylist()])
    return np.ones(len(column), dtype=bool)


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _texts(column: pa.LargeBinaryArray, is_utf8: NDArray[np.bool_]) -> pa.LargeStringArray:
    filled = pc.fill_null(pc.if_else(pa.array(is_utf8), column, b""), b"")
    return pc.utf8_trim_whitespace(filled.cast(pa.large_string()))


def _share_of(sentence: str, seed: int) -> float:
    digest = hashlib.blake2b(f"{seed} {sentence}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _numbered_texts(texts: pa.StringArray) -> NDArray[np.int64]:
    return texts.dictionary_encode().indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _numbered(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)
