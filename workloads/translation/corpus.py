"""A parallel corpus as arrays of numbers, made by the grammar or prepared from real text.

Axes: N sentence pair, S source token, T target token, V word of a vocabulary, A arc.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPECIALS = ("<pad>", "<sos>", "<eos>", "<unk>")
PAD, SOS, EOS, UNK = range(4)

TRAIN, VALID, TEST = range(3)
"""The parts of a corpus: for training, for probes, and for translation at the end. No source sentence is in two."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Side:
    """One language of N sentences.

    Attributes:
        words: (V,) the vocabulary: `SPECIALS`, then words by falling frequency in the training part. A word's frequency
            rank is its index minus the number of specials.
        tokens: (N, longest) int64, each sentence's words, then EOS, then PAD.
        lengths: (N,) int64, the number of tokens, EOS included.
    """

    words: tuple[str, ...]
    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Gold:
    """Annotations that a grammar knows and real text lacks. Positions count tokens from 0.

    Attributes:
        relations: Names of the dependency relations, such as `subject`.
        source_arcs, target_arcs: (A, 4) int64 rows (sentence, relation, dependent, governor), sorted by sentence.
        alignment: (N, T) int64, the source position that a target token translates; -1 if there is none, and at PAD.
        token_nats: (N, T) float64, -log p(token | source, tokens before) in nats: 0 if the source determines the token,
            and at PAD.
        target_nats: (N,) float64, -log p(target sentence) in nats, without knowledge of the source.
    """

    relations: tuple[str, ...]
    source_arcs: NDArray[np.int64]
    target_arcs: NDArray[np.int64]
    alignment: NDArray[np.int64]
    token_nats: NDArray[np.float64]
    target_nats: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Corpus:
    """N pairs of sentences in three parts.

    Attributes:
        source, target: The two languages.
        part: (N,) int64 among `TRAIN`, `VALID`, `TEST`.
        gold: `None` for real text.
        digest: Equal for two corpora if and only if all other attributes are equal.
    """

    source: Side
    target: Side
    part: NDArray[np.int64]
    gold: Gold | None
    digest: str


_DIGEST_BYTES = 16


def corpus_digest(source: Side, target: Side, part: NDArray[np.int64], gold: Gold | None) -> str:
    """Hex digest of a corpus's words and arrays: equal for two corpora if and only if these are equal.

    Every piece is preceded by its kind and size, so that moving a boundary between two pieces changes the digest.
    Bytes are little-endian on every machine.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for side in (source, target):
        _add_words(digest, side.words)
        _add_array(digest, side.tokens)
        _add_array(digest, side.lengths)
    _add_array(digest, part)
    _add_words(digest, ("no gold",) if gold is None else ("gold", *gold.relations))
    if gold is not None:
        for field in dataclasses.fields(Gold):
            if field.name != "relations":
                _add_array(digest, getattr(gold, field.name))
    return digest.hexdigest()


def _add_words(digest: hashlib.blake2b, words: Sequence[str]) -> None:
    encoded = [word.encode() for word in words]
    digest.update(f"words {len(encoded)}\n".encode())
    for word in encoded:
        digest.update(f"{len(word)} ".encode() + word)


def _add_array(digest: hashlib.blake2b, array: NDArray[np.int64] | NDArray[np.float64]) -> None:
    little_endian = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    digest.update(f"array {little_endian.dtype.str} {little_endian.shape}\n".encode())
    digest.update(little_endian.tobytes())
