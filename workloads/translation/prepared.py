"""Reads the file of a prepared corpus, whose columns `source` and `target` have words, without EOS and PAD."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.workloads.prepared_files import Format, checked_rows, part_numbers
from attnsweep.workloads.translation.corpus import EOS, PAD, SPECIALS, Corpus, Side, corpus_digest

PART_NAMES = ("train", "valid", "test")
"""The names of the parts, in the order of `corpus.TRAIN`, `VALID`, `TEST`."""


def make_side(words: tuple[str, ...], sentences: pa.ListArray) -> Side:
    """Makes one language of a corpus from N lists of word numbers: appends EOS, and pads to the longest."""
    lengths = sentences.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    tokens = np.full((len(lengths), int(lengths.max(initial=0)) + 1), PAD, dtype=np.int64)
    tokens[np.arange(tokens.shape[1]) < lengths[:, None]] = sentences.flatten().to_numpy()
    tokens[np.arange(len(lengths)), lengths] = EOS
    return Side(words=words, tokens=tokens, lengths=lengths + 1)


def make_corpus(source: Side, target: Side, part: NDArray[np.int64]) -> Corpus:
    digest = corpus_digest(source, target, part, None)
    return Corpus(source=source, target=target, part=part, gold=None, digest=digest)


def _assembled(table: pa.Table, words: dict[str, list[str]]) -> Corpus:
    source, target = (
        make_side(tuple(words[name]), checked_rows(table, name, words[name], SPECIALS)) for name in ("source", "target")
    )
    return make_corpus(source, target, part_numbers(table, PART_NAMES))


CORPUS_FILE = Format(
    noun="prepared corpus",
    prepare="attnsweep prepare-corpus FILE --out CORPUS.parquet",
    version_key="corpus_schema_version",
    columns=("source", "target"),
    part_names=PART_NAMES,
    assembled=_assembled,
)


def read_corpus(path: str | Path) -> Corpus:
    """Reads a file that `attnsweep prepare-corpus` wrote. Raises the same errors as `Format.read`."""
    return CORPUS_FILE.read(path)
