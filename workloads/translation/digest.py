"""One name for all that a corpus holds, so that two runs can tell whether they trained on the same sentences."""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.translation.corpus import Gold, Side

_DIGEST_BYTES = 16


def corpus_digest(source: Side, target: Side, part: NDArray[np.int64], gold: Gold | None) -> str:
    """Hex digest of a corpus's words and arrays: equal for two corpora if and only if these are equal.

    Every piece is preceded by its kind and size, so that no boundary can move from one piece to the next unseen.
    Bytes are little-endian, on any machine.
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
