"""Sentences of like length put together, so that little is computed on padding. Axes: N sentence pair.

Which bucket a step draws from depends on the corpus and the step alone, never on a training: all lanes of a pack, and
of any other pack, see tensors of the same shape at a step, and round alike.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.translation.corpus import Corpus

_MOST_BUCKETS = 8
_LEAST_BATCHES = 4
"""Batches of a bucket at least, where there are so many: less than one of them is left over."""


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Some pairs of sentences.

    Attributes:
        pairs: By number in the corpus.
        n_source, n_target: Tokens of the longest.
    """

    pairs: NDArray[np.int64]
    n_source: int
    n_target: int


def by_length(corpus: Corpus, pairs: NDArray[np.int64], n_buckets: int) -> list[Bucket]:
    """The pairs in order of length, cut into buckets of equal size (the last may be smaller)."""
    lengths = corpus.target.lengths[pairs], corpus.source.lengths[pairs]
    ordered = pairs[np.lexsort((pairs, *lengths))]
    size = -(-len(pairs) // n_buckets)
    return [_bucket(corpus, ordered[first : first + size]) for first in range(0, len(pairs), size)]


def _bucket(corpus: Corpus, pairs: NDArray[np.int64]) -> Bucket:
    return Bucket(pairs, int(corpus.source.lengths[pairs].max()), int(corpus.target.lengths[pairs].max()))


class Passes:
    """Which sentences each step of a training is on: pass after pass over all buckets.

    Args:
        corpus: All pairs.
        train: Those trained on.
        batch_size: Pairs per step. What is left over in a bucket waits for another pass.
        seed: Of the order of buckets.
    """

    def __init__(self, corpus: Corpus, train: NDArray[np.int64], batch_size: int, seed: int) -> None:
        n_buckets = max(1, min(_MOST_BUCKETS, len(train) // batch_size // _LEAST_BATCHES))
        self.buckets = by_length(corpus, train, n_buckets)
        self._batch_size = batch_size
        self._n_batches = np.array([max(1, len(bucket.pairs) // batch_size) for bucket in self.buckets])
        self._order = Streams(torch.tensor([seed]))

    @property
    def steps(self) -> int:
        """Steps of a pass."""
        return int(self._n_batches.sum())

    def bucket_at(self, step: int) -> tuple[int, int]:
        """The bucket of a step, and how many steps of this pass were in it before."""
        sequence, place = self._sequence(step // self.steps), step % self.steps
        bucket = int(sequence[place])
        return bucket, int((sequence[:place] == bucket).sum())

    def _sequence(self, turn: int) -> NDArray[np.int64]:
        """(steps,) the buckets of a pass, in a random order of its own."""
        drawn = self._order.uniform("translation/buckets", (self.steps,), turn)[0].numpy()
        return np.repeat(np.arange(len(self.buckets)), self._n_batches)[np.argsort(drawn, kind="stable")]
