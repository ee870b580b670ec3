"""Finds the corpus of a training, cached per process, and computes the statistics of its training part.

Axes: N sentence pair, V word.
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.diagnostics.ngrams import CountedLaws
from attnsweep.workloads.translation.corpus import SPECIALS, TRAIN, UNK, Corpus
from attnsweep.workloads.translation.grammar import grammar_corpus
from attnsweep.workloads.translation.losses import counted_laws
from attnsweep.workloads.translation.parameters import TranslationParameters
from attnsweep.workloads.translation.prepared import read_corpus

_HELD_OUT_LEAST = 500
"""The number of sentences that the grammar generates for each held-out part, unless the parameters need more."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StudiedCorpus:
    """A corpus, and the statistics of the pairs that one training is trained on.

    Attributes:
        corpus: All pairs.
        train: The indices of the pairs on which a training is trained.
        is_short: (N,) whether each source is no longer than the median of the training part.
        source_rarity, target_rarity: (V,) the frequency ranks of words in the training part, 0 the most frequent; -1
            for PAD, SOS and EOS; unknown words are the rarest.
        laws: The unigram and bigram distributions of the target text on which a training is trained.
    """

    corpus: Corpus
    train: NDArray[np.int64]
    is_short: NDArray[np.bool_]
    source_rarity: NDArray[np.int64]
    target_rarity: NDArray[np.int64]
    laws: CountedLaws

    def held_out(self, part: int, most: int) -> NDArray[np.int64]:
        """Returns the indices of the first `most` pairs of a part, or of all pairs if the part has fewer."""
        return np.flatnonzero(self.corpus.part == part)[:most]


def studied_corpus(parameters: TranslationParameters) -> StudiedCorpus:
    """Returns a training's corpus. All trainings with the same corpus share one object in a process."""
    assert parameters.n_sentences is not None
    if not parameters.is_of_grammar:
        return _studied(read_corpus(parameters.corpus), parameters.n_sentences, parameters.train_on)
    corpus = _cached_grammar_corpus(
        parameters.lexicon,
        parameters.n_sentences,
        max(_HELD_OUT_LEAST, parameters.eval_sentences, parameters.head_sentences),
        max(_HELD_OUT_LEAST, parameters.test_sentences),
        parameters.corpus_seed,
    )
    return _studied(corpus, parameters.n_sentences, parameters.train_on)


_cached_grammar_corpus = functools.lru_cache(maxsize=4)(grammar_corpus)


@functools.lru_cache(maxsize=4)
def _studied(corpus: Corpus, n_sentences: int, train_on: str) -> StudiedCorpus:
    train = np.flatnonzero(corpus.part == TRAIN)[:n_sentences]
    is_short = corpus.source.lengths <= np.median(corpus.source.lengths[train])
    if train_on == "short":
        train = train[is_short[train]]
    return StudiedCorpus(
        corpus=corpus,
        train=train,
        is_short=is_short,
        source_rarity=_rarity(len(corpus.source.words)),
        target_rarity=_rarity(len(corpus.target.words)),
        laws=counted_laws(corpus.target, train),
    )


def _rarity(n_words: int) -> NDArray[np.int64]:
    rank = np.arange(n_words) - len(SPECIALS)
    rank[: len(SPECIALS)] = -1
    rank[UNK] = n_words
    return rank
