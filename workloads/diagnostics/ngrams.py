"""The unigram and bigram distributions of a text, for the losses of two simple predictors."""

import numpy as np
from numpy.typing import NDArray

_PRIOR_SIGHTINGS = 1.0
"""The prior's weight, in occurrences of a token: uniform for unigrams, the unigrams for bigrams. Our choice."""


class CountedLaws:
    """The probabilities of tokens, and of tokens after another, estimated from the pairs (before[i], tokens[i])."""

    def __init__(self, before: NDArray[np.int64], tokens: NDArray[np.int64], n_words: int) -> None:
        self._n_words = n_words
        n_seen = np.bincount(tokens, minlength=n_words)
        self._unigram = (n_seen + _PRIOR_SIGHTINGS / n_words) / (n_seen.sum() + _PRIOR_SIGHTINGS)
        self._seen_before = np.bincount(before, minlength=n_words)
        self._pairs, self._seen_pairs = np.unique(before * n_words + tokens, return_counts=True)

    def unigram_nats(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        nats: NDArray[np.float64] = -np.log(self._unigram[tokens])
        return nats

    def bigram_nats(self, before: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        key = before * self._n_words + tokens
        place = np.searchsorted(self._pairs, key).clip(max=self._pairs.size - 1)
        n_seen = np.where(self._pairs[place] == key, self._seen_pairs[place], 0)
        prior = _PRIOR_SIGHTINGS * self._unigram[tokens]
        nats: NDArray[np.float64] = -np.log((n_seen + prior) / (self._seen_before[before] + _PRIOR_SIGHTINGS))
        return nats
