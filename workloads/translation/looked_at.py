"""The held-out sentences on which heads are scored, in buckets by length, with the annotations that scores need.

Axes: B sentence, S source token, T target token.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.sentences import Arcs, Sentences, fit_offsets
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.translation.alignment import Alignment
from attnsweep.workloads.translation.buckets import Bucket, by_length
from attnsweep.workloads.translation.corpus import EOS, PAD, SOS, TRAIN, UNK, VALID, Corpus, Gold
from attnsweep.workloads.translation.data import pairs_of
from attnsweep.workloads.translation.lookup import StudiedCorpus, studied_corpus
from attnsweep.workloads.translation.parameters import TranslationParameters

_BUCKETS = 8
FREQUENT_COVERAGE = 0.75
"""A word is rare unless it is among the most frequent words that make up this share of the training text. Voita et al.
2019 use the 500 most frequent words, which cover about this share of English text. Our choice of a share, unlike a
fixed number of words, also fits small vocabularies."""


@dataclass(frozen=True, slots=True, eq=False)
class LookedAt:
    """One bucket of the sentences on which attention heads are scored.

    Attributes:
        batch: The tensors that a model reads, (B, ...).
        sentences: The sentences as role scores need them, by layer.
        n_tokens: (B,) the number of tokens of each sentence, by self-attention layer: attention matrices are cut to it.
        alignment: The grammar's alignment; `None` for real text.
    """

    batch: Batch
    sentences: dict[str, Sentences]
    n_tokens: dict[str, Tensor]
    alignment: Alignment | None


def looked_at(parameters: TranslationParameters, device: torch.device) -> tuple[LookedAt, ...]:
    """Returns the sentences of a training's corpus on which heads are scored, in buckets. Cached in this process."""
    return _looked_at(studied_corpus(parameters), parameters.head_sentences, device)


@functools.lru_cache(maxsize=4)
def _looked_at(studied: StudiedCorpus, n_sentences: int, device: torch.device) -> tuple[LookedAt, ...]:
    gold = studied.corpus.gold
    fits = None if gold is None else _Fits(studied.corpus, gold)
    pairs = studied.held_out(VALID, n_sentences)
    return tuple(_annotated(studied, bucket, fits, device) for bucket in by_length(studied.corpus, pairs, _BUCKETS))


class _Fits:
    """The best fixed offsets on the training sentences, which serve as baselines of syntactic and alignment scores."""

    def __init__(self, corpus: Corpus, gold: Gold) -> None:
        self.gold = gold
        train = np.flatnonzero(corpus.part == TRAIN)
        longest = max(corpus.source.tokens.shape[1], corpus.target.tokens.shape[1] + 1)
        self.source_offsets = fit_offsets(_arcs(gold, gold.source_arcs, train, 0), longest)
        self.target_offsets = fit_offsets(_arcs(gold, gold.target_arcs, train, 1), longest, is_causal=True)
        place = gold.alignment[train]
        offsets = (place - np.arange(place.shape[1]))[place >= 0]
        values, counts = np.unique(offsets, return_counts=True)
        self.alignment_offset = int(values[counts.argmax()])


def _annotated(studied: StudiedCorpus, bucket: Bucket, fits: _Fits | None, device: torch.device) -> LookedAt:
    words = pairs_of(studied, torch.as_tensor(bucket.pairs, device=device).unsqueeze(0), bucket)
    batch = {name: value[0] for name, value in words.items()}
    source, read = batch["source"], batch["read"]
    source_words = (source != PAD) & (source != EOS)
    read_words = (read != PAD) & (read != SOS)
    rarity = {
        "source": torch.as_tensor(studied.source_rarity, device=device),
        "target": torch.as_tensor(studied.target_rarity, device=device),
    }
    sentences = {
        "encoder_self": Sentences(
            queries=source != PAD,
            keys=source_words,
            query_tokens=source,
            key_tokens=source,
            rarity=rarity["source"],
            n_frequent=_n_frequent(studied.corpus.source.tokens[studied.train]),
            arcs=None if fits is None else _arcs(fits.gold, fits.gold.source_arcs, bucket.pairs, 0, device),
            offsets=None if fits is None else fits.source_offsets.to(device),
        ),
        "decoder_self": Sentences(
            queries=read_words,
            keys=read_words,
            is_causal=True,
            query_tokens=read,
            key_tokens=read,
            rarity=rarity["target"],
            n_frequent=_n_frequent(studied.corpus.target.tokens[studied.train]),
            arcs=None if fits is None else _arcs(fits.gold, fits.gold.target_arcs, bucket.pairs, 1, device),
            offsets=None if fits is None else fits.target_offsets.to(device),
        ),
        "cross": Sentences(
            queries=read != PAD,
            keys=source_words,
            key_tokens=source,
            rarity=rarity["source"],
            n_frequent=_n_frequent(studied.corpus.source.tokens[studied.train]),
        ),
    }
    n_tokens = {"encoder_self": (source != PAD).sum(1).cpu(), "decoder_self": (read != PAD).sum(1).cpu()}
    if fits is None:
        return LookedAt(batch, sentences, n_tokens, None)
    place = torch.as_tensor(fits.gold.alignment[bucket.pairs, : bucket.n_target], device=device)
    return LookedAt(batch, sentences, n_tokens, Alignment(place, fits.alignment_offset))


def _n_frequent(tokens: NDArray[np.int64]) -> int:
    """Returns how many of the most frequent words cover the fraction `FREQUENT_COVERAGE` of a text."""
    words = tokens[tokens > UNK]
    seen = np.sort(np.bincount(words))[::-1]
    return int(np.searchsorted(np.cumsum(seen), FREQUENT_COVERAGE * words.size)) + 1


def _arcs(
    gold: Gold, arcs_A4: NDArray[np.int64], pairs: NDArray[np.int64], shift: int, device: torch.device | None = None
) -> Arcs:
    """Selects the dependency arcs of some pairs, numbers these pairs from 0, and adds `shift` to all positions."""
    place = np.full(len(gold.alignment), -1)
    place[pairs] = np.arange(len(pairs))
    chosen = arcs_A4[place[arcs_A4[:, 0]] >= 0]
    columns = [place[chosen[:, 0]], chosen[:, 1], chosen[:, 2] + shift, chosen[:, 3] + shift]
    sentence, relation, dependent, governor = (torch.as_tensor(column, device=device) for column in columns)
    return Arcs(relations=gold.relations, sentence=sentence, relation=relation, dependent=dependent, governor=governor)
