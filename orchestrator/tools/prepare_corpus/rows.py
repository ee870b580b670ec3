"""Which rows of a text can be used, which are held out, and how the corpus is written.

Axis: N row.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from attnsweep.orchestrator.storage.output_file import check_output, writing_file
from attnsweep.orchestrator.tools.prepare_corpus.raw_text import RawText
from attnsweep.orchestrator.tools.prepare_corpus.vocabulary import Sentences, Unit, split
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.prepared_files import Format

_MOST = 2**31 - 1
_NO_TEXT = r"[\p{Cc}\x{FFFD}]"
"""Matches control characters, and the replacement character, which some program wrote for bytes it could not decode."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparationSettings:
    """The settings for preparing a corpus: which words and rows are kept, and which rows are held out from training.

    Attributes:
        unit: Whether a token is a word or a character. Pairs of sentences are always split into words.
        min_frequency: Words rarer than this in the training part become unknown words.
        longest: The most words of a row that is kept; `None` for no limit.
        held_out: The share of the rows held out; of pairs half for validation, half for test.
        lowercase: Whether text is lowercased.

    Raises:
        UserError: If a value is out of its range.
    """

    unit: Unit = "words"
    min_frequency: int = 2
    longest: int | None = None
    held_out: float = 0.1
    lowercase: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for flag, value in (("--min-frequency", self.min_frequency), ("--longest", self.longest)):
            if value is not None and not 1 <= value <= _MOST:
                raise UserError(
                    flag, given=value, expected=f"a whole number from 1 to {_MOST}", fix="give a number in this range"
                )
        if not 0 < self.held_out < 1:
            expected = "the share of the rows that are not for training, a number between 0 and 1"
            fix = "write for example --held-out 0.1"
            raise UserError("--held-out", given=self.held_out, expected=expected, fix=fix)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A corpus that was written.

    Attributes:
        facts: The origin, the settings, and the counts of rows and words, as `--json` prints them.
        tables: The facts as tables for the screen.
        next_command: The command to try next: a sweep that trains on the file.
    """

    out: Path
    digest: str
    facts: Mapping[str, Any]
    tables: tuple[Table, ...]
    next_command: str

    def to_json(self) -> str:
        content = {"corpus": str(self.out), "digest": self.digest, **self.facts, "next": self.next_command}
        return json.dumps(content, allow_nan=False)

    def print(self, console: Console) -> None:
        for table in self.tables:
            console.print(table)
        console.print(f"corpus   {self.out} (digest {self.digest})", soft_wrap=True, markup=False)
        console.print(f"next     {self.next_command}", soft_wrap=True, markup=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class UsableRows:
    """The rows that are kept.

    Attributes:
        texts, sentences: For each column the texts (N,), and the same texts split into words.
        dropped: The number of dropped rows by the first reason that applies.
    """

    texts: list[pa.LargeStringArray]
    sentences: list[Sentences]
    dropped: dict[str, int]

    def counts(self) -> dict[str, Any]:
        kept = len(self.texts[0])
        return {"rows": kept + sum(self.dropped.values()), "kept": kept, "dropped": self.dropped}


def usable_rows(raw: RawText, settings: PreparationSettings, *, empty: str, expected: str, fix: str) -> UsableRows:
    """Decodes and splits texts, and leaves out rows that cannot be used.

    Args:
        empty: The name of the reason that a text of the row has no words.
        expected, fix: What the error says that was expected, and how to mend it.

    Raises:
        UserError: If no row can be used, with the reasons.
    """
    is_utf8_N = np.logical_and.reduce([_is_utf8(column) for column in raw.columns])
    texts = [_decoded(column, is_utf8_N) for column in raw.columns]
    sentences = [split(column.to_pylist(), settings.unit, lowercase=settings.lowercase) for column in texts]
    reason_N = np.full(len(is_utf8_N), "", dtype=object)

    def mark(reason: str, mask_N: NDArray[np.bool_]) -> None:
        reason_N[(reason_N == "") & mask_N] = reason

    mark("not_utf8", ~is_utf8_N)
    for column in texts:
        mark("not_text", pc.match_substring_regex(column, _NO_TEXT).to_numpy(zero_copy_only=False))
    for side in sentences:
        mark(empty, side.lengths == 0)
    for side in sentences:
        mark("too_long", side.lengths > (settings.longest or _MOST))
    mark("duplicate", _is_repeated(sentences, reason_N == ""))
    counts = Counter(reason_N.tolist())
    dropped = {"wrong_number_of_fields": raw.n_wrong_fields} | {
        reason: counts[reason] for reason in ("not_utf8", "not_text", empty, "too_long", "duplicate")
    }
    is_kept_N = np.asarray(reason_N == "")
    if not is_kept_N.any():
        why = in_words({name: count for name, count in dropped.items() if count})
        given = f"a file of {sum(dropped.values())} rows, none of which can be used" + (f" ({why})" if why else "")
        raise UserError("FILE", given=given, expected=expected, fix=fix)
    return UsableRows(
        texts=[column.filter(pa.array(is_kept_N)) for column in texts],
        sentences=[side.filter(is_kept_N) for side in sentences],
        dropped=dropped,
    )


def shares(sentences: Sentences, seed: int) -> NDArray[np.float64]:
    """A pseudo-random number from 0 to 1 for each sentence."""
    texts = (f"{seed} {text}".encode() for text in sentences.joined().to_pylist())
    digests = (hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.array([int.from_bytes(digest, "big") / 2**64 for digest in digests])


def in_words(numbers: Mapping[str, int]) -> str:
    """Such as `not utf8 3, duplicate 12`."""
    return ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in numbers.items())


def check_out(out: Path, kind: Format[Any]) -> None:
    """Raises UserError if the folder cannot be written, or holds a file of another kind there. Writes nothing."""
    check_output(out)
    if out.exists() and not kind.is_at(out):
        expected = f"the path of a new file, or of a {kind.noun} that may be overwritten"
        raise UserError("--out", given=str(out), expected=expected, fix="choose another path")


def write(table: pa.Table, out: Path) -> None:
    """A file that was there before stays until the new one is complete."""
    with writing_file(out) as path:
        pq.write_table(table, path, compression="zstd")


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def rows_table(usable: UsableRows) -> Table:
    counts = usable.counts()
    grid = Table(box=box.SIMPLE_HEAD)
    grid.add_column("rows")
    grid.add_column(f"{counts['rows']:,}", justify="right")
    for reason, count in usable.dropped.items():
        grid.add_row(f"dropped: {reason.replace('_', ' ')}", f"{count:,}")
    grid.add_row("kept", f"{counts['kept']:,}")
    return grid


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


def _decoded(column: pa.LargeBinaryArray, is_utf8_N: NDArray[np.bool_]) -> pa.LargeStringArray:
    """A text that is missing or cannot be decoded becomes empty."""
    filled = pc.fill_null(pc.if_else(pa.array(is_utf8_N), column, b""), b"")
    return pc.utf8_trim_whitespace(filled.cast(pa.large_string()))


def _is_repeated(sentences: list[Sentences], is_kept_N: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether an earlier kept row has the same words."""
    rows = list(zip(*(side.joined().to_pylist() for side in sentences), strict=True))
    is_repeated_N = np.zeros(len(is_kept_N), dtype=bool)
    seen = set()
    for row in np.flatnonzero(is_kept_N):
        is_repeated_N[row] = rows[row] in seen
        seen.add(rows[row])
    return is_repeated_N
