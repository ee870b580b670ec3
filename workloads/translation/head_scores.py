"""Scores and labels the attention heads of translators on held-out sentences. Formulas and sources: docs/roles.md.

The alignment scores say how often cross-attention finds the source word that the next target word translates; the
grammar knows that word. No role depends on these scores: the roles are positional, syntactic and rare-token.

Axes: L lane, H head, B sentence, S source token, T target token, Q query, K key, ... any number of axes of heads.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.counts import Looks, RoleCounts, count_roles
from attnsweep.workloads.diagnostics.roles.scores import label_roles, role_scores, score_names
from attnsweep.workloads.diagnostics.roles.sentences import Arcs, Sentences, fit_offsets
from attnsweep.workloads.diagnostics.shuffles import SCORES as STRUCTURE_SCORES
from attnsweep.workloads.diagnostics.shuffles import PooledStructure
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
    """For a batch of sentences with their translations, the source word that each target word translates.

    Attributes:
        place_BQ: The position of the source word that the next target word of each query translates; -1 if there is
            none.
        offset: The best fixed difference between source position and query position, fitted on training sentences.
    """

    place_BQ: Tensor
    offset: int


class AlignmentCounts(NamedTuple):
    """Counts, for each attention head, the queries at which the head attends most to the source word that the next
    target word translates. Queries whose next word translates no source word are left out.

    Attributes:
        hits: (...) the number of queries whose strongest key is the translated word.
        by_offset: The number of queries at whose position plus the fixed offset the translated word is.
        n_queries: The number of queries whose next word has an aligned word.
    """

    hits: NDArray[np.float64]
    by_offset: int
    n_queries: int


def count_aligned(strongest: Tensor, sentences: Sentences, alignment: Alignment) -> AlignmentCounts:
    """Counts on one batch how often each head attends most to the source word that the next target word translates.

    `strongest` is the key of largest weight for each query, (..., n_sentences, n_queries).
    """
    place_BQ = alignment.place_BQ
    counts_BQ = sentences.queries & (place_BQ >= 0)
    counts_BQ = counts_BQ & sentences.keys.gather(1, place_BQ.clamp(min=0))
    hits = ((strongest == place_BQ) & counts_BQ).sum((-2, -1))
    query_Q = place_BQ.new_tensor(range(place_BQ.shape[1]))
    by_offset = ((query_Q + alignment.offset == place_BQ) & counts_BQ).sum()
    return AlignmentCounts(hits.double().cpu().numpy(), int(by_offset), int(counts_BQ.sum()))


def alignment_scores(counts: Sequence[AlignmentCounts]) -> dict[str, NDArray[np.float64]]:
    """Returns how often a head attends most to the source word that the next target word translates (`alignment`), and
    how often that source word is at the query's position plus a fixed offset (`alignment_baseline`).

    Both are fractions of the queries whose next word translates a source word.
    """
    n_queries = sum(batch.n_queries for batch in counts)
    hits = np.sum([batch.hits for batch in counts], axis=0)
    return {
        "alignment": hits / n_queries,
        "alignment_baseline": np.full_like(hits, sum(batch.by_offset for batch in counts) / n_queries),
    }


_BUCKETS = 8
FREQUENT_COVERAGE = 0.75
"""A word is rare unless it is among the most frequent words that make up this share of the training text. Voita et al.
2019 use the 500 most frequent words, which cover about this share of English text. Our choice of a share, unlike a
fixed number of words, also fits small vocabularies."""


@dataclass(frozen=True, slots=True, eq=False)
class LookedAt:
    """One bucket (group of similar length) of the sentences on which attention heads are scored.

    Attributes:
        sentences: The sentences as role scores need them, by layer.
        n_tokens: (n_sentences,) the number of tokens of each sentence, by self-attention layer: attention matrices are
            cut to it.
        alignment: The grammar's alignment; `None` for real text.
    """

    batch: Batch
    sentences: dict[str, Sentences]
    n_tokens: dict[str, Tensor]
    alignment: Alignment | None


def looked_at(parameters: TranslationParameters, device: torch.device) -> tuple[LookedAt, ...]:
    """Returns the sentences of a training's corpus on which attention heads are scored, in buckets of similar length.
    The result is cached in this process."""
    return _looked_at(studied_corpus(parameters), parameters.head_sentences, device)


@functools.lru_cache(maxsize=4)
def _looked_at(studied: StudiedCorpus, n_sentences: int, device: torch.device) -> tuple[LookedAt, ...]:
    gold = studied.corpus.gold
    fits = None if gold is None else _Fits(studied.corpus, gold)
    pairs = studied.held_out(VALID, n_sentences)
    return tuple(_annotated(studied, bucket, fits, device) for bucket in by_length(studied.corpus, pairs, _BUCKETS))


class _Fits:
    """The offsets from query to key that most often lead to a word's head, or to its translation."""

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
    source_words, read_words = (source != PAD) & (source != EOS), (read != PAD) & (read != SOS)
    source_side, target_side = (
        functools.partial(
            Sentences,
            rarity=torch.as_tensor(rarity, device=device),
            n_frequent=_n_frequent(side.tokens[studied.train]),
        )
        for side, rarity in (
            (studied.corpus.source, studied.source_rarity),
            (studied.corpus.target, studied.target_rarity),
        )
    )
    sentences = {
        "encoder_self": source_side(
            queries=source != PAD,
            keys=source_words,
            query_tokens=source,
            key_tokens=source,
            arcs=None if fits is None else _arcs(fits.gold, fits.gold.source_arcs, bucket.pairs, 0, device),
            offsets=None if fits is None else fits.source_offsets.to(device),
        ),
        "decoder_self": target_side(
            queries=read_words,
            keys=read_words,
            is_causal=True,
            query_tokens=read,
            key_tokens=read,
            arcs=None if fits is None else _arcs(fits.gold, fits.gold.target_arcs, bucket.pairs, 1, device),
            offsets=None if fits is None else fits.target_offsets.to(device),
        ),
        "cross": source_side(queries=read != PAD, keys=source_words, key_tokens=source),
    }
    n_tokens = {"encoder_self": (source != PAD).sum(1).cpu(), "decoder_self": (read != PAD).sum(1).cpu()}
    if fits is None:
        return LookedAt(batch, sentences, n_tokens, None)
    place = torch.as_tensor(fits.gold.alignment[bucket.pairs, : bucket.n_target], device=device)
    return LookedAt(batch, sentences, n_tokens, Alignment(place, fits.alignment_offset))


def _n_frequent(tokens: NDArray[np.int64]) -> int:
    """Returns how many of the most frequent words together make up the fraction `FREQUENT_COVERAGE` of a text."""
    words = tokens[tokens > UNK]
    seen = np.sort(np.bincount(words))[::-1]
    return int(np.searchsorted(np.cumsum(seen), FREQUENT_COVERAGE * words.size)) + 1


def _arcs(
    gold: Gold, arcs_A4: NDArray[np.int64], pairs: NDArray[np.int64], shift: int, device: torch.device | None = None
) -> Arcs:
    """Returns the dependency arcs of the given sentence pairs."""
    place = np.full(len(gold.alignment), -1)
    place[pairs] = np.arange(len(pairs))
    chosen = arcs_A4[place[arcs_A4[:, 0]] >= 0]
    columns = [place[chosen[:, 0]], chosen[:, 1], chosen[:, 2] + shift, chosen[:, 3] + shift]
    sentence, relation, dependent, governor = (torch.as_tensor(column, device=device) for column in columns)
    return Arcs(relations=gold.relations, sentence=sentence, relation=relation, dependent=dependent, governor=governor)


SCORE_NAMES = (*score_names(RELATIONS), *STRUCTURE_SCORES, *ALIGNMENT_SCORES)

_LANES_AT_ONCE, _ON_A_CPU = 256, 16
"""The number of trainings scored together, on a GPU and on a CPU, which bounds the memory of attention weights. A GPU
takes as long for 16 trainings as for 256."""
_STRUCTURE_STRIDE = 4
"""Distances from structured matrices use every fourth sentence of each length in each bucket. The distances are means
with far less spread than shares of hits, and on all sentences they would cost as much as all role scores together."""


def score_heads(template: TranslationModel, lanes: TranslationLanes, state: State) -> HeadScores:
    """Scores and labels the attention heads of trained translators, (n_trainings, 3, n_heads). The three layers are the
    encoder's self-attention, the decoder's self-attention, and cross-attention.

    `template` is the model of any of the trainings; `state` has parameters and buffers, (n_trainings, ...) by name.
    """
    all_lanes = torch.arange(len(lanes.trainings))
    at_once = torch.split(all_lanes, _ON_A_CPU if lanes.device.type == "cpu" else _LANES_AT_ONCE)
    parts = [_scores(template, lanes, state, chosen.to(lanes.device)) for chosen in at_once]
    scores = {name: np.concatenate([part[name] for part in parts]) for name in SCORE_NAMES}
    return HeadScores(scores=scores, role=label_roles(scores))


def _scores(
    template: TranslationModel, lanes: TranslationLanes, state: State, chosen: Tensor
) -> dict[str, NDArray[np.float64]]:
    parameters, buffers = parted(template, selected(state, chosen))
    attend = over_lanes(template, lambda module, batch: cast(TranslationModel, module).attention(batch))
    measures = [_Measures(layer, template.translator.shape.longest) for layer in LAYERS]
    for part in looked_at(lanes.shared, lanes.device):
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
        self._alignments: list[AlignmentCounts] = []
        self._structure = PooledStructure(longest)

    def add(self, attention_LHBQK: Tensor, part: LookedAt) -> None:
        sentences = part.sentences[self._layer]
        looks = Looks.of(attention_LHBQK, sentences)
        self._roles.append(count_roles(attention_LHBQK, sentences, looks))
        if self._layer != "cross":
            self._add_structure(attention_LHBQK, part.n_tokens[self._layer])
        elif part.alignment is not None:
            self._alignments.append(count_aligned(looks.strongest, sentences, part.alignment))

    def scores(self) -> dict[str, NDArray[np.float64]]:
        roles = role_scores(functools.reduce(add, self._roles))
        scores = dict.fromkeys(SCORE_NAMES, np.full_like(roles["positional_share"], np.nan)) | roles
        if self._layer != "cross":
            scores |= {name: value.double().cpu().numpy() for name, value in self._structure.scores().items()}
        if self._alignments:
            scores |= alignment_scores(self._alignments)
        return scores

    def _add_structure(self, attention_LHBQK: Tensor, n_tokens_B: Tensor) -> None:
        for n in sorted(set(n_tokens_B.tolist())):
            sentences_of_length = (n_tokens_B == n).nonzero()[::_STRUCTURE_STRIDE, 0]
            self._structure.add(attention_LHBQK[:, :, sentences_of_length, :n, :n])
