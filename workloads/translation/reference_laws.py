"""Laws of target text that do not know the source: what a translator that learned nothing of it is measured against.

Axes: N sentence, T token, V word.
"""

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.translation.corpus import SOS, Side

_PRIOR_SIGHTINGS = 1.0
"""What the law that a count is mixed with weighs, in sightings: uniform for unigrams, unigram for bigrams. Ours."""


class ReferenceLaws:
    """Unigram and bigram law of a language, counted on some sentences.

    Args:
        side: The language.
        sentences: (n,) those counted, by number.
    """

    def __init__(self, side: Side, sentences: NDArray[np.int64]) -> None:
        self._n_words = V = len(side.words)
        tokens = side.tokens[sentences]
        is_token = np.arange(tokens.shape[1]) < side.lengths[sentences, None]
        words, before = tokens[is_token], preceding(tokens)[is_token]
        seen = np.bincount(words, minlength=V)
        self._unigram = (seen + _PRIOR_SIGHTINGS / V) / (seen.sum() + _PRIOR_SIGHTINGS)
        self._seen_before = np.bincount(before, minlength=V)
        self._pairs, self._seen_pairs = np.unique(before * V + words, return_counts=True)

    def unigram_nats(self, tokens_NT: NDArray[np.int64]) -> NDArray[np.float64]:
        """(N, T) -log p of each token by its frequency."""
        nats: NDArray[np.float64] = -np.log(self._unigram[tokens_NT])
        return nats

    def bigram_nats(self, tokens_NT: NDArray[np.int64]) -> NDArray[np.float64]:
        """(N, T) -log p of each token after the one before it, SOS at first."""
        before_NT = preceding(tokens_NT)
        key_NT = before_NT * self._n_words + tokens_NT
        place_NT = np.searchsorted(self._pairs, key_NT).clip(max=self._pairs.size - 1)
        seen_NT = np.where(self._pairs[place_NT] == key_NT, self._seen_pairs[place_NT], 0)
        prior_NT = _PRIOR_SIGHTINGS * self._unigram[tokens_NT]
        nats: NDArray[np.float64] = -np.log((seen_NT + prior_NT) / (self._seen_before[before_NT] + _PRIOR_SIGHTINGS))
        return nats


def preceding(tokens_NT: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N, T) the token before each: what the decoder reads."""
    return np.concatenate([np.full((len(tokens_NT), 1), SOS), tokens_NT[:, :-1]], axis=1)
