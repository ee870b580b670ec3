"""Scores and labels the attention heads of translators on held-out sentences. Formulas and sources: docs/heads.md.

The alignment scores say how often cross-attention finds the source word that the next target word translates, which the
grammar knows. No role depends on them.

Axes: L lane, H head, B sentence, Q query, K key, A arc; ... any, of heads.
"""

import functools
from dataclasses import dataclass
from operator import add
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.counts import Looks, RoleCounts, count_roles
from attnsweep.workloads.diagnostics.roles.scores import label_roles, role_scores, score_names
from attnsweep.workloads.diagnostics.roles.sentences import Arcs, Sentences, fit_offsets
from attnsweep.workloads.diagnostics.structure import SCORES as STRUCTURE_SCORES
from attnsweep.workloads.diagnostics.structure import PooledStructure
from attnsweep.workloads.engine.contract import Batch, HeadScores
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.engine.layout import selected
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.translation.corpus import EOS, PAD, SOS, TRAIN, UNK, VALID, Corpus, Gold
from attnsweep.workloads.translation.data import (
    Bucket,
    StudiedCorpus,
    TranslationLanes,
    by_length,
    pairs_of,
    studied_corpus,
)
from attnsweep.workloads.translation.grammar.tree import RELATIONS
from attnsweep.workloads.translation.model import TranslationModel
from attnsweep.workloads.translation.parameters import TranslationParameters
from attnsweep.workloads.translation.translator import LAYERS

ALIGNMENT_SCORES = ("alignment", "alignment_baseline")


@dataclass(frozen=True, slots=True)
class Alignment:
    """The source position that each query's next target word translates, -1 for none; and the most frequent difference
    between source and query position in training sentences."""

    place_BQ: Tensor
    offset: int


def count_aligned(strongest: Tensor, sentences: Sentences, alignment: Alignment) -> NDArray[np.float64]:
    """(3, ...): the queries whose next word has an aligned one; of these, those that have it at the fixed offset; and
    for each head those whose strongest key, (..., B, Q), it is."""
    place_BQ = alignment.place_BQ
    counts_BQ = sentences.queries & (place_BQ >= 0) & sentences.keys.gather(1, place_BQ.clamp(min=0))
    by_offset_BQ = torch.arange(place_BQ.shape[1], device=place_BQ.device) + alignment.offset == place_BQ
    hits = ((strongest == place_BQ) & counts_BQ).sum((-2, -1))
    counts = [counts_BQ.sum().expand_as(hits), (by_offset_BQ & counts_BQ).sum().expand_as(hits), hits]
    return np.asarray(torch.stack(counts).double().cpu().numpy())


_BUCKETS = 8
FREQUENT_COVERAGE = 0.75
"""The most frequent words, which make up this share of the training text, are not rare. Voita et al.'s 500 have about
this share of English; unlike a number of words, a share fits small vocabularies too."""


@dataclass(frozen=True, slots=True, eq=False)
class HeadSentences:
    """One bucket of the sentences on which heads are scored.

    Attributes:
        sentences: By layer, as role scores need them.
        n_tokens: (B,) by self-attention layer: attention matrices are cut to it.
        alignment: `None` for real text.
    """

    batch: Batch
    sentences: dict[str, Sentences]
    n_tokens: dict[str, Tensor]
    alignment: Alignment | None


def head_sentences(parameters: TranslationParameters, device: torch.device) -> tuple[HeadSentences, ...]:
    """In buckets, cached."""
    return _head_sentences(studied_corpus(parameters), parameters.head_sentences, device)


@functools.lru_cache(maxsize=4)
def _head_sentences(studied: StudiedCorpus, n_sentences: int, device: torch.device) -> tuple[HeadSentences, ...]:
    gold = studied.corpus.gold
    fits = None if gold is None else _Fits(studied.corpus, gold)
    pairs = studied.held_out(VALID, n_sentences)
    return tuple(_annotated(studied, bucket, fits, device) for bucket in by_length(studied.corpus, pairs, _BUCKETS))


class _Fits:
    """The offsets from query to key that most often lead to a word's governor, dependent, or translation."""

    def __init__(self, corpus: Corpus, gold: Gold) -> None:
        self.gold = gold
        train = np.flatnonzero(corpus.part == TRAIN)
        longest = max(corpus.source.tokens.shape[1], corpus.target.tokens.shape[1] + 1)
        source, target = self._arcs(train)
        self._offsets = fit_offsets(source, longest), fit_offsets(target, longest, is_causal=True)
        place = gold.alignment[train]
        offsets = (place - np.arange(place.shape[1]))[place >= 0]
        values, counts = np.unique(offsets, return_counts=True)
        self.alignment_offset = int(values[counts.argmax()])

    def of(self, pairs: NDArray[np.int64], device: torch.device) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arcs of these pairs, numbered in their order, and the offsets: of source, and of target."""
        both = zip(self._arcs(pairs, device), self._offsets, strict=True)
        source, target = ({"arcs": arcs, "offsets": offsets.to(device)} for arcs, offsets in both)
        return source, target

    def _arcs(self, pairs: NDArray[np.int64], device: torch.device | None = None) -> tuple[Arcs, Arcs]:
        place = np.full(len(self.gold.alignment), -1)
        place[pairs] = np.arange(len(pairs))
        made = []
        # The tokens that the decoder reads begin with SOS, so positions move by one.
        for arcs_A4, shift in ((self.gold.source_arcs, 0), (self.gold.target_arcs, 1)):
            chosen = arcs_A4[place[arcs_A4[:, 0]] >= 0]
            columns = [place[chosen[:, 0]], chosen[:, 1], chosen[:, 2] + shift, chosen[:, 3] + shift]
            sentence, relation, dependent, governor = (torch.as_tensor(column, device=device) for column in columns)
            ends = {"dependent": dependent, "governor": governor}
            made.append(Arcs(relations=self.gold.relations, sentence=sentence, relation=relation, **ends))
        return made[0], made[1]


def _annotated(studied: StudiedCorpus, bucket: Bucket, fits: _Fits | None, device: torch.device) -> HeadSentences:
    words = pairs_of(studied, torch.as_tensor(bucket.pairs, device=device).unsqueeze(0), bucket)
    batch = {name: value[0] for name, value in words.items()}
    source, read = batch["source"], batch["read"]
    source_words, read_words = (source != PAD) & (source != EOS), (read != PAD) & (read != SOS)
    corpus = studied.corpus
    of_source, of_target = (
        {"rarity": torch.as_tensor(rarity, device=device), "n_frequent": _n_frequent(side.tokens[studied.train])}
        for side, rarity in ((corpus.source, studied.source_rarity), (corpus.target, studied.target_rarity))
    )
    source_arcs, target_arcs = ({}, {}) if fits is None else fits.of(bucket.pairs, device)
    own: dict[str, Any] = {"query_tokens": source, "key_tokens": source, **of_source, **source_arcs}
    sentences = {"encoder_self": Sentences(queries=source != PAD, keys=source_words, **own)}
    own = {"query_tokens": read, "key_tokens": read, **of_target, **target_arcs}
    sentences["decoder_self"] = Sentences(queries=read_words, keys=read_words, is_causal=True, **own)
    own = {"key_tokens": source, **of_source}
    sentences["cross"] = Sentences(queries=read != PAD, keys=source_words, **own)
    n_tokens = {"encoder_self": (source != PAD).sum(1).cpu(), "decoder_self": (read != PAD).sum(1).cpu()}
    if fits is None:
        return HeadSentences(batch, sentences, n_tokens, None)
    place = torch.as_tensor(fits.gold.alignment[bucket.pairs, : bucket.n_target], device=device)
    return HeadSentences(batch, sentences, n_tokens, Alignment(place, fits.alignment_offset))


def _n_frequent(tokens: NDArray[np.int64]) -> int:
    """How many of the most frequent words make up the share `FREQUENT_COVERAGE` of a text."""
    words = tokens[tokens > UNK]
    seen = np.sort(np.bincount(words))[::-1]
    return int(np.searchsorted(np.cumsum(seen), FREQUENT_COVERAGE * words.size)) + 1


SCORE_NAMES = (*score_names(RELATIONS), *STRUCTURE_SCORES, *ALIGNMENT_SCORES)

_GPU_LANES, _CPU_LANES = 256, 16
"""How many trainings are scored in one call, on a GPU and on a CPU. They bound memory; 256 take a GPU as long as 16."""
_STRUCTURE_STRIDE = 4
"""Distances use every fourth sentence of each length and bucket: means spread far less than shares of hits, and on all
sentences they would cost as much as the role scores."""


def score_heads(template: TranslationModel, lanes: TranslationLanes, state: State) -> HeadScores:
    """Scores and roles of all heads: axis 1 is the layer, in the order of `LAYERS`."""
    all_lanes = torch.arange(len(lanes.trainings))
    chunks = torch.split(all_lanes, _CPU_LANES if lanes.device.type == "cpu" else _GPU_LANES)
    parts = [_scores(template, lanes, state, chunk.to(lanes.device)) for chunk in chunks]
    scores = {name: np.concatenate([part[name] for part in parts]) for name in SCORE_NAMES}
    return HeadScores(scores=scores, role=label_roles(scores))


def _scores(
    template: TranslationModel, lanes: TranslationLanes, state: State, chosen: Tensor
) -> dict[str, NDArray[np.float64]]:
    parameters, buffers = parted(template, selected(state, chosen))
    attend = over_lanes(template, lambda module, batch: cast(TranslationModel, module).attention(batch))
    measures = [_Measures(layer, template.translator.shape.longest) for layer in LAYERS]
    for part in head_sentences(lanes.shared, lanes.device):
        batch: Batch = {name: value.expand(len(chosen), *value.shape) for name, value in part.batch.items()}
        with torch.no_grad():
            attention = attend(parameters, buffers, batch)
        for layer, measure in zip(LAYERS, measures, strict=True):
            measure.add(attention[layer].transpose(1, 2), part)
    by_layer = [measure.scores() for measure in measures]
    return {name: np.stack([scores[name] for scores in by_layer], axis=1) for name in SCORE_NAMES}


class _Measures:
    def __init__(self, layer: str, longest: int) -> None:
        self._layer = layer
        self._roles: list[RoleCounts] = []
        self._aligned: list[NDArray[np.float64]] = []
        self._structure = PooledStructure(longest)

    def add(self, attention_LHBQK: Tensor, part: HeadSentences) -> None:
        sentences = part.sentences[self._layer]
        looks = Looks.of(attention_LHBQK, sentences)
        self._roles.append(count_roles(attention_LHBQK, sentences, looks))
        if self._layer != "cross":
            n_tokens_B = part.n_tokens[self._layer]
            for n in sorted(set(n_tokens_B.tolist())):
                of_length = (n_tokens_B == n).nonzero()[::_STRUCTURE_STRIDE, 0]
                self._structure.add(attention_LHBQK[:, :, of_length, :n, :n])
        elif part.alignment is not None:
            self._aligned.append(count_aligned(looks.strongest, sentences, part.alignment))

    def scores(self) -> dict[str, NDArray[np.float64]]:
        roles = role_scores(functools.reduce(add, self._roles))
        scores = dict.fromkeys(SCORE_NAMES, np.full_like(roles["positional_share"], np.nan)) | roles
        if self._layer != "cross":
            scores |= {name: value.double().cpu().numpy() for name, value in self._structure.scores().items()}
        if self._aligned:
            n_queries, by_offset, hits = np.sum(self._aligned, axis=0)
            scores |= {"alignment": hits / n_queries, "alignment_baseline": by_offset / n_queries}
        return scores
