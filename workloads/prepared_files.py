"""Prepared corpora: Parquet files that `attnsweep prepare-corpus` makes and trainings read.

A row is a sentence or a document: lists of int32, indices into the vocabulary, and the column `part`. Vocabulary,
version of the format and digest of the content are in the file's metadata.
"""

import hashlib
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
_VERSION = "2"


class Digested(Protocol):
    @property
    def digest(self) -> str: ...


C = TypeVar("C", bound=Digested)


def digest_of(*parts: Sequence[str] | NDArray[Any]) -> str:
    """A hash of texts and arrays, whose numbers are little-endian on every machine."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            array = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<"))
            kind, content = f"{array.dtype.str} {array.shape}", array.tobytes()
        else:
            kind, content = "texts", json.dumps(part).encode()
        # With kind and size, moving a boundary between two parts changes the hash.
        digest.update(f"{kind} {len(content)}\n".encode() + content)
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Format(Generic[C]):
    """A file format of prepared corpora.

    Attributes:
        version_key: The metadata key of the version, which identifies the format.
        part_names: Such as `train`, in the order of their numbers.
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
        """With all metadata; `columns` have word indices, `part` each row's part, (n_rows,)."""
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


@lru_cache(maxsize=8)
def _read(kind: Format[Any], path: str, mtime_ns: int, size: int) -> Any:
    del mtime_ns, size
    given = f"{path}, not a {kind.noun} of version {_VERSION}"
    try:
        table = pq.read_table(path, partitioning=None)
        metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        if metadata.get(kind.version_key) == _VERSION:
            columns, words = table.select(kind.schema.names).cast(kind.schema), json.loads(metadata[_WORDS_KEY])
            content = kind.assembled(columns, words)
            if content.digest == metadata[_DIGEST_KEY]:
                return content
            given = f"{path}, which was changed after its preparation (digest {content.digest})"
    except (OSError, KeyError, TypeError, ValueError) as error:
        given = f"{path}, which cannot be read as a {kind.noun} ({error})"
    raise UserError("corpus", given=given, expected=f"a {kind.noun}", fix=f"prepare it again: {kind.prepare}")


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
