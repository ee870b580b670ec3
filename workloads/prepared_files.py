"""The files that `attnsweep prepare-corpus` writes and trainings read, each kind with its columns and its vocabulary.

One Parquet file: columns of lists of int32, numbers of words, and `part`. The vocabulary, the version of the kind and
the digest of the content are in the file's metadata.
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
    """The content of a file; its digest tells whether it was changed."""

    @property
    def digest(self) -> str:
        """Equal for two contents if and only if these are equal."""


C = TypeVar("C", bound=Digested)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Format(Generic[C]):
    """One kind of prepared file.

    Attributes:
        noun: Its name in error texts, such as `prepared corpus`.
        prepare: The command that makes one.
        version_key: The key of the version in the metadata, by which kinds are told apart.
        columns: The names of the columns of words.
        part_names: The names of the parts, in the order of their numbers.
        assembled: Makes the content of a table and its vocabulary. It may raise ValueError, KeyError or TypeError.
    """

    noun: str
    prepare: str
    version_key: str
    columns: tuple[str, ...]
    part_names: tuple[str, ...]
    assembled: Callable[[pa.Table, Any], C]

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
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
        """What is written to a file.

        Args:
            columns: Of words.
            part: The number of each row's part.
            words: The vocabulary.
            digest: That of the content.
            further: Facts that readers do not need, by key.
        """
        metadata = {self.version_key: _VERSION, _DIGEST_KEY: digest}
        for key, value in {_WORDS_KEY: words, **further}.items():
            metadata[key] = json.dumps(value, ensure_ascii=False, allow_nan=False)
        parts = pa.DictionaryArray.from_arrays(pa.array(part, pa.int8()), pa.array(self.part_names))
        return pa.Table.from_arrays([*columns, parts], schema=self.schema.with_metadata(metadata))

    def is_at(self, path: Path) -> bool:
        """Whether a file's metadata says that it is of this kind."""
        try:
            return self.version_key.encode() in (pq.read_schema(path).metadata or {})
        except (OSError, pa.ArrowInvalid):
            return False

    def read(self, path: str | Path) -> C:
        """The content of a file; cached per process until the file changes.

        Raises:
            UserError: If there is no such file, it is of another kind, or it was changed after its preparation.
        """
        file = given_file(Path(path), "corpus", f"a {self.noun}")
        state = file.stat()
        found: C = _read(self, str(file), state.st_mtime_ns, state.st_size)
        return found

    def refused(self, given: str, expected: str, fix: str) -> UserError:
        """The error of a file that cannot be used."""
        return UserError("corpus", given=given, expected=expected, fix=f"{fix}: {self.prepare}")


@lru_cache(maxsize=8)
def _read(of: Format[Any], path: str, mtime_ns: int, size: int) -> Any:
    del mtime_ns, size
    other, again = f"a {of.noun}", "prepare it again"
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowInvalid) as error:
        raise of.refused(path, other, "prepare it") from error
    metadata = {key.decode(errors="replace"): value for key, value in (table.schema.metadata or {}).items()}
    if of.version_key not in metadata:
        raise of.refused(path, other, "prepare it")
    if (version := metadata[of.version_key].decode(errors="replace")) != _VERSION:
        raise of.refused(f"{path}, version {version}", f"version {_VERSION}", again)
    try:
        content = of.assembled(table.select(of.schema.names).cast(of.schema), json.loads(metadata[_WORDS_KEY]))
        recorded = metadata[_DIGEST_KEY].decode()
    except (KeyError, TypeError, ValueError, pa.ArrowInvalid) as error:
        raise of.refused(path, f"a complete {of.noun}", again) from error
    if content.digest != recorded:
        given, expected = f"{path}, digest {content.digest}", f"the digest it was written with, {recorded}"
        raise of.refused(given, expected, f"it was changed since: {again}")
    return content


def checked_rows(table: pa.Table, column: str, words: Sequence[str], specials: tuple[str, ...]) -> pa.ListArray:
    """The rows of a column, checked to be numbers of words; the last special stands for unknown words.

    Raises:
        ValueError: If they are not, or the vocabulary does not begin with the specials.
    """
    rows = table[column].combine_chunks()
    numbers = rows.flatten()
    if rows.null_count or numbers.null_count or tuple(words[: len(specials)]) != specials:
        raise ValueError("a row or a word is missing")
    if not all(isinstance(word, str) for word in words):
        raise ValueError("a word is no text")
    if len(numbers) and not len(specials) - 1 <= pc.min(numbers).as_py() <= pc.max(numbers).as_py() < len(words):
        raise ValueError("a number is no word's")
    return rows


def part_numbers(table: pa.Table, part_names: tuple[str, ...]) -> NDArray[np.int64]:
    """(N,) the number of each row's part.

    Raises:
        ValueError: If a name is not one of these.
    """
    part = pc.index_in(table["part"].cast(pa.string()).combine_chunks(), pa.array(part_names))
    # Arrow raises if a name was not found.
    return np.asarray(part.to_numpy(zero_copy_only=True).astype(np.int64))


def pinned_file(values: Mapping[str, Value], path: Path, content: Digested) -> dict[str, Value]:
    """The parameters `corpus` and `corpus_digest` that follow from a file: its absolute path and what it holds.

    Raises:
        SpecError: If another digest is given.
    """
    if values.get("corpus_digest") not in (None, content.digest):
        raise SpecError(
            "corpus_digest",
            given=values["corpus_digest"],
            expected=f"{content.digest}, as {path} has",
            fix="the file has changed since the sweep began: restore it, or begin another sweep",
        )
    return {"corpus": str(path), "corpus_digest": content.digest}
