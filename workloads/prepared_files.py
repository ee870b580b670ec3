"""Prepared corpora: Parquet files that `attnsweep prepare-corpus` makes and that trainings read.

A row is a sentence or a document. It has columns with lists of int32 (indices into the vocabulary) and the column
`part` (such as training). The vocabulary, the version of the format and the digest of the content are in the file's
metadata.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.files import given_file
from attnsweep.workloads.parameters import Value

_WORDS_KEY, _DIGEST_KEY = "words", "digest"
_VERSION = "1"


class Digested(Protocol):
    """The content of a prepared corpus file, and a digest that reveals whether the file was changed."""

    @property
    def digest(self) -> str:
        """A hash of the file's content. Two contents are equal if and only if their digests are."""


C = TypeVar("C", bound=Digested)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Format(Generic[C]):
    """A file format of prepared corpora.

    Attributes:
        version_key: The metadata key of the format's version, which identifies the format.
        part_names: The names of the parts, such as `train`, in the order of their numbers.
        assembled: Makes the content from a table and its vocabulary. It may raise ValueError, KeyError or TypeError.
    """

    noun: str
    prepare: str
    version_key: str
    columns: tuple[str, ...]
    part_names: tuple[str, ...]
    assembled: Callable[[pa.Table, Any], C]

    @property
    def schema(self) -> pa.Schema:
        words = [pa.field(name, pa.list_(pa.int32())) for name in self.columns]
        return pa.schema([*words, pa.field("part", pa.dictionary(pa.int8(), pa.string()))])

    def table(
        self,
        columns: Sequence[pa.ListArray],
        part: NDArray[np.int64],
        words: object,
        digest: str,
        further: Mapping[str, object],
    ) -> pa.Table:
        """A file's table, from columns of word indices and each row's part, (n_rows,), with all metadata."""
        metadata = {self.version_key: _VERSION, _DIGEST_KEY: digest}
        for key, value in {_WORDS_KEY: words, **further}.items():
            metadata[key] = json.dumps(value, ensure_ascii=False, allow_nan=False)
        parts = pa.DictionaryArray.from_arrays(pa.array(part, pa.int8()), pa.array(self.part_names))
        return pa.Table.from_arrays([*columns, parts], schema=self.schema.with_metadata(metadata))

    def is_at(self, path: Path) -> bool:
        """Whether the file at `path` can be read and says that it has this format."""
        try:
            return self.version_key.encode() in (pq.read_schema(path).metadata or {})
        except (OSError, pa.ArrowInvalid):
            return False

    def read(self, path: str | Path) -> C:
        """Reads a corpus, or refuses the file; cached until it changes."""
        file = given_file(Path(path), "corpus", f"a {self.noun}")
        state = file.stat()
        content: C = _read(self, str(file), state.st_mtime_ns, state.st_size)
        return content

    def refused(self, given: str, expected: str, fix: str) -> UserError:
        """The error for a file that cannot be used; its fix ends with the command that prepares such files."""
        return UserError("corpus", given=given, expected=expected, fix=f"{fix}: {self.prepare}")


@lru_cache(maxsize=8)
def _read(kind: Format[Any], path: str, mtime_ns: int, size: int) -> Any:
    del mtime_ns, size
    noun, again = f"a {kind.noun}", "prepare the corpus again"
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowInvalid) as error:
        given = f"the file {path}, which cannot be read as Parquet"
        raise kind.refused(given, noun, "prepare the corpus with this command") from error
    metadata = {key.decode(errors="replace"): value for key, value in (table.schema.metadata or {}).items()}
    if kind.version_key not in metadata:
        given = f"the file {path}, which attnsweep has not prepared"
        raise kind.refused(given, noun, "prepare the corpus with this command")
    if (version := metadata[kind.version_key].decode(errors="replace")) != _VERSION:
        raise kind.refused(
            f"the file {path} of the format version {version}", f"a file of the format version {_VERSION}", again
        )
    try:
        content = kind.assembled(table.select(kind.schema.names).cast(kind.schema), json.loads(metadata[_WORDS_KEY]))
        recorded = metadata[_DIGEST_KEY].decode()
    except (KeyError, TypeError, ValueError, pa.ArrowInvalid) as error:
        raise kind.refused(path, f"a {kind.noun} with all columns and metadata of this format", again) from error
    if content.digest != recorded:
        given, expected = f"{path}, digest {content.digest}", f"the digest it was written with, {recorded}"
        raise kind.refused(given, expected, f"the file was changed after its preparation: {again}")
    return content


def checked_rows(table: pa.Table, column: str, words: Sequence[str], specials: tuple[str, ...]) -> pa.ListArray:
    """A column's rows of word indices, or a `ValueError` for a missing row, word or special token, or an index out of
    range. `words` begin with the specials, of which rows may contain only the last one, for unknown words."""
    rows = table[column].combine_chunks()
    numbers = rows.flatten()
    if rows.null_count or numbers.null_count or tuple(words[: len(specials)]) != specials:
        raise ValueError("a row, a word or a special token of the vocabulary is missing")
    if not all(isinstance(word, str) for word in words):
        raise ValueError("a word of the vocabulary is not a string")
    if len(numbers) and not len(specials) - 1 <= pc.min(numbers).as_py() <= pc.max(numbers).as_py() < len(words):
        raise ValueError("a row contains an index that no word of the vocabulary has")
    return rows


def part_numbers(table: pa.Table, part_names: tuple[str, ...]) -> NDArray[np.int64]:
    """Each row's part as an index into `part_names`, or a `ValueError`."""
    part = pc.index_in(table["part"].cast(pa.string()).combine_chunks(), pa.array(part_names))
    # For an unknown part it is null, for which `zero_copy_only` raises.
    return np.asarray(part.to_numpy(zero_copy_only=True).astype(np.int64))


def pinned_file(values: Mapping[str, Value], path: Path, content: Digested) -> dict[str, Value]:
    """The parameters `corpus`, the path, and `corpus_digest`; refuses a file that has changed since `values` had it."""
    if values.get("corpus_digest") not in (None, content.digest):
        expected = f"the digest {content.digest} of the file {path}"
        fix = "restore the file, which has changed since the sweep began, or begin another sweep"
        raise SpecError("corpus_digest", given=values["corpus_digest"], expected=expected, fix=fix)
    return {"corpus": str(path), "corpus_digest": content.digest}
