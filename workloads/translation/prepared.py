"""The file of a prepared corpus, as `attnsweep prepare-corpus` writes it. Axes: N sentence pair, T token.

One Parquet file with columns `source` and `target`, lists of int32 (words, without EOS and PAD), and `part`. The
vocabularies, the format's version and the digest are in the file's metadata.
"""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file
from attnsweep.workloads.translation.corpus import EOS, PAD, SPECIALS, UNK, Corpus, Side, corpus_digest

SCHEMA_VERSION = 1
VERSION_KEY, WORDS_KEY, DIGEST_KEY = "corpus_schema_version", "words", "digest"
"""Keys of the metadata: the format's version, the two vocabularies, `Corpus.digest`."""

PART_NAMES = ("train", "valid", "test")
"""The names of the parts, in the order of `corpus.TRAIN`, `VALID`, `TEST`."""

_HOW_TO_PREPARE = "prepare it: attnsweep prepare-corpus FILE --out CORPUS.parquet"
_PREPARE_AGAIN = "prepare it again: attnsweep prepare-corpus FILE --out CORPUS.parquet"

SCHEMA = pa.schema(
    [
        pa.field("source", pa.list_(pa.int32())),
        pa.field("target", pa.list_(pa.int32())),
        pa.field("part", pa.dictionary(pa.int8(), pa.string())),
    ]
)


def make_side(words: tuple[str, ...], sentences: pa.ListArray) -> Side:
    """One language of a corpus from (N,) lists of word numbers: EOS appended, padded to the longest."""
    lengths = sentences.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    tokens = np.full((len(lengths), int(lengths.max(initial=0)) + 1), PAD, dtype=np.int64)
    tokens[np.arange(tokens.shape[1]) < lengths[:, None]] = sentences.flatten().to_numpy()
    tokens[np.arange(len(lengths)), lengths] = EOS
    return Side(words=words, tokens=tokens, lengths=lengths + 1)


def make_corpus(source: Side, target: Side, part: NDArray[np.int64]) -> Corpus:
    """A corpus of real text."""
    digest = corpus_digest(source, target, part, None)
    return Corpus(source=source, target=target, part=part, gold=None, digest=digest)


def is_prepared(path: Path) -> bool:
    """Whether a file's metadata says that it is a prepared corpus."""
    try:
        return VERSION_KEY.encode() in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowInvalid):
        return False


def read_corpus(path: str | Path) -> Corpus:
    """Reads a prepared corpus; cached per process until the file changes.

    Raises:
        UserError: If there is no such file, it is not a prepared corpus, or it was changed after its preparation.
    """
    file = given_file(Path(path), "corpus", "a prepared corpus")
    state = file.stat()
    return _read(str(file), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _read(path: str, mtime_ns: int, size: int) -> Corpus:
    del mtime_ns, size
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowInvalid) as error:
        raise _refused(path, _HOW_TO_PREPARE) from error
    metadata = table.schema.metadata or {}
    if VERSION_KEY.encode() not in metadata:
        raise _refused(path, _HOW_TO_PREPARE)
    if (version := metadata[VERSION_KEY.encode()].decode(errors="replace")) != str(SCHEMA_VERSION):
        raise UserError(
            "corpus", given=f"{path}, version {version}", expected=f"version {SCHEMA_VERSION}", fix=_PREPARE_AGAIN
        )
    try:
        corpus = _assemble(table, json.loads(metadata[WORDS_KEY.encode()]))
        recorded = metadata[DIGEST_KEY.encode()].decode()
    except (KeyError, TypeError, ValueError, pa.ArrowInvalid) as error:
        raise UserError("corpus", given=path, expected="a complete prepared corpus", fix=_PREPARE_AGAIN) from error
    if corpus.digest != recorded:
        raise UserError(
            "corpus",
            given=f"{path}, digest {corpus.digest}",
            expected=f"the digest it was written with, {recorded}",
            fix=f"it was changed since: {_PREPARE_AGAIN}",
        )
    return corpus


def _assemble(table: pa.Table, words: dict[str, list[str]]) -> Corpus:
    """The corpus that a file's table holds.

    Raises:
        ValueError: If the table is not that of a corpus; Arrow's own errors are `ValueError`s too.
    """
    table = table.select(SCHEMA.names).cast(SCHEMA)
    source, target = (
        make_side(tuple(words[name]), _checked(table[name].combine_chunks(), words[name]))
        for name in ("source", "target")
    )
    part = pc.index_in(table["part"].cast(pa.string()).combine_chunks(), pa.array(PART_NAMES))
    # Arrow raises if a name is not one of these.
    return make_corpus(source, target, part.to_numpy(zero_copy_only=True).astype(np.int64))


def _checked(sentences: pa.ListArray, words: list[str]) -> pa.ListArray:
    numbers = sentences.flatten()
    if sentences.null_count or numbers.null_count or tuple(words[: len(SPECIALS)]) != SPECIALS:
        raise ValueError("a sentence or a word is missing")
    if not all(isinstance(word, str) for word in words):
        raise ValueError("a word is no text")
    if len(numbers) and not UNK <= pc.min(numbers).as_py() <= pc.max(numbers).as_py() < len(words):
        raise ValueError("a number is no word's")
    return sentences


def _refused(path: str | Path, fix: str) -> UserError:
    return UserError("corpus", given=str(path), expected="a prepared corpus", fix=fix)
