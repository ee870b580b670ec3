"""Buckets of sentences of similar length, so that little is computed on padding. Axes: N sentence pair.

The bucket of a step depends on the corpus and the step alone, never on a training. So at a step all lanes of all packs
have tensors of the same shape, with the same rounding.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.translation.corpus import Corpus

_MOST_BUCKETS = 8
_LEAST_BATCHES = 4
"""The smallest number of batches per bucket, if the corpus is large enough. Each pass leaves out a bucket's pairs
beyond its last full batch, so buckets must not be too small."""


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """A group of sentence pairs of similar length, which fill batches with little padding.

    Attributes:
        pairs: (n,) the indices of the pairs in the corpus.
        n_source, n_target: The number of tokens of the longest source and target sentence.
    """

    pairs: NDArray[np.int64]
    n_source: int
    n_target: int


def by_length(corpus: Corpus, pairs: NDArray[np.int64], n_buckets: int) -> list[Bucket]:
    """Sorts sentence pairs by length and cuts them into buckets of equal size. The last bucket may be smaller."""
    lengths = corpus.target.lengths[pairs], corpus.source.lengths[pairs]
    ordered = pairs[np.lexsort((pairs, *lengths))]
    size = -(-len(pairs) // n_buckets)
    return [_bucket(corpus, ordered[first : first + size]) for first in range(0, len(pairs), size)]


def _bucket(corpus: Corpus, pairs: NDArray[np.int64]) -> Bucket:
    return Bucket(pairs, int(corpus.source.lengths[pairs].max()), int(corpus.target.lengths[pairs].max()))


class Passes:
    """Assigns to each step of a training a bucket of sentence pairs, in repeated passes over all buckets.

    Args:
        corpus: All pairs.
        train: The indices of the training pairs.
        batch_size: Pairs per step. A pass leaves out the pairs of a bucket that do not fill a batch.
        seed: The seed of the order of buckets.
    """

    def __init__(self, corpus: Corpus, train: NDArray[np.int64], batch_size: int, seed: int) -> None:
        n_buckets = max(1, min(_MOST_BUCKETS, len(train) // batch_size // _LEAST_BATCHES))
        self.buckets = by_length(corpus, train, n_buckets)
        self._batch_size = batch_size
        self._n_batches = np.array([max(1, len(bucket.pairs) // batch_size) for bucket in self.buckets])
        self._order = Streams(torch.tensor([seed]))

    @property
    def steps(self) -> int:
        return int(self._n_batches.sum())

    def bucket_at(self, step: int) -> tuple[int, int]:
        """Returns a step's bucket, and how many earlier steps of the same pass used this bucket."""
        sequence, place = _sequence(self, step // self.steps), step % self.steps
        bucket = int(sequence[place])
        return bucket, int((sequence[:place] == bucket).sum())

    def sequence(self, turn: int) -> NDArray[np.int64]:
        """Returns the buckets of the steps of pass number `turn`, (steps,), in this pass's random order."""
        drawn = self._order.uniform("translation/buckets", (self.steps,), turn)[0].numpy()
        return np.repeat(np.arange(len(self.buckets)), self._n_batches)[np.argsort(drawn, kind="stable")]


@functools.lru_cache(maxsize=4)
def _sequence(passes: Passes, turn: int) -> NDArray[np.int64]:
    """Caches `Passes.sequence` for the steps of one pass, because drawing it takes 150 operations."""
    return passes.sequence(turn)
