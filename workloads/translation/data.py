"""The corpus of a training, and the batches of translators that are trained together.

A bucket holds sentence pairs of similar length, so that little is computed on padding. The bucket of a step depends on
static parameters and the step alone, so the tensors of all trainings have the same shape, with the same rounding.

Axes: L lane, B sentence, S source token, T target token, N training pair, n one of a bucket's.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.ngrams import CountedLaws
from attnsweep.workloads.engine.contract import Batch, Lanes
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.translation.corpus import (
    PAD,
    SPECIALS,
    TRAIN,
    UNK,
    VALID,
    Corpus,
    Side,
    preceding,
    read_corpus,
)
from attnsweep.workloads.translation.grammar import grammar_corpus
from attnsweep.workloads.translation.parameters import TranslationParameters

_MIN_HELD_OUT = 500
"""Sentences of the grammar's validation and test parts, unless the parameters need more."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StudiedCorpus:
    """A corpus and what one training uses of it.

    Attributes:
        train: The indices of the pairs that it is trained on.
        is_short: (n_pairs,) whether each source is no longer than the median of the first `n_sentences` training pairs.
        source_rarity, target_rarity: (n_words,) frequency ranks in the training part, 0 the most frequent; -1 for PAD,
            SOS and EOS; unknown words are the rarest.
        laws: The unigrams and bigrams of the target sentences of `train`.
    """

    corpus: Corpus
    train: NDArray[np.int64]
    is_short: NDArray[np.bool_]
    source_rarity: NDArray[np.int64]
    target_rarity: NDArray[np.int64]
    laws: CountedLaws

    def held_out(self, part: int, max_pairs: int) -> NDArray[np.int64]:
        return np.flatnonzero(self.corpus.part == part)[:max_pairs]


def studied_corpus(parameters: TranslationParameters) -> StudiedCorpus:
    """The latest four are cached."""
    assert parameters.n_sentences is not None
    if not parameters.is_of_grammar:
        return _studied(read_corpus(parameters.corpus), parameters.n_sentences, parameters.train_on)
    corpus = _cached_grammar_corpus(
        parameters.lexicon,
        parameters.n_sentences,
        max(_MIN_HELD_OUT, parameters.eval_sentences, parameters.head_sentences),
        max(_MIN_HELD_OUT, parameters.test_sentences),
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
        laws=_counted_laws(corpus.target, train),
    )


def _counted_laws(side: Side, sentences: NDArray[np.int64]) -> CountedLaws:
    tokens = side.tokens[sentences]
    is_token = np.arange(tokens.shape[1]) < side.lengths[sentences, None]
    return CountedLaws(preceding(tokens)[is_token], tokens[is_token], len(side.words))


def _rarity(n_words: int) -> NDArray[np.int64]:
    rank = np.arange(n_words) - len(SPECIALS)
    rank[: len(SPECIALS)] = -1
    rank[UNK] = n_words
    return rank


_MAX_BUCKETS = 8
_MIN_BATCHES = 4
"""In a bucket, if the corpus allows: each pass leaves out pairs beyond a bucket's last full batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """The indices of pairs of similar length, and the tokens of the longest source and target."""

    pairs: NDArray[np.int64]
    n_source: int
    n_target: int


def by_length(corpus: Corpus, pairs: NDArray[np.int64], n_buckets: int) -> list[Bucket]:
    """Cuts pairs, sorted by length, into buckets of equal numbers; the last may be smaller."""
    lengths = corpus.target.lengths[pairs], corpus.source.lengths[pairs]
    ordered = pairs[np.lexsort((pairs, *lengths))]
    size = -(-len(pairs) // n_buckets)
    return [
        Bucket(part, int(corpus.source.lengths[part].max()), int(corpus.target.lengths[part].max()))
        for part in (ordered[first : first + size] for first in range(0, len(pairs), size))
    ]


class Passes:
    """Assigns a bucket to each step. A pass over the data, of `steps` steps, uses each as often as it fills a batch,
    but at least once."""

    def __init__(self, corpus: Corpus, train: NDArray[np.int64], batch_size: int, seed: int) -> None:
        n_buckets = max(1, min(_MAX_BUCKETS, len(train) // batch_size // _MIN_BATCHES))
        self.buckets = by_length(corpus, train, n_buckets)
        self.n_batches = np.array([max(1, len(bucket.pairs) // batch_size) for bucket in self.buckets])
        self.streams = Streams(torch.tensor([seed]))
        self.steps = int(self.n_batches.sum())

    def bucket_at(self, step: int) -> tuple[int, int]:
        """The bucket of a step, and how many earlier steps of the same pass used it."""
        sequence, place = _sequence(self, step // self.steps), step % self.steps
        bucket = int(sequence[place])
        return bucket, int((sequence[:place] == bucket).sum())


@functools.lru_cache(maxsize=4)
def _sequence(passes: Passes, turn: int) -> NDArray[np.int64]:
    """The bucket of each step of a pass, in its own random order; cached, because drawing is slow."""
    drawn = passes.streams.uniform("translation/buckets", (passes.steps,), turn)[0].numpy()
    return np.repeat(np.arange(len(passes.buckets)), passes.n_batches)[np.argsort(drawn, kind="stable")]


TranslationLanes = Lanes[TranslationParameters]

_EVAL_BUCKETS = 4


def training_batches(lanes: TranslationLanes, steps: range) -> list[Batch]:
    """Those of the first of these steps, none beyond the current pass; each training has its own order."""
    shared = lanes.shared
    studied = studied_corpus(shared)
    passes = _passes(studied, shared.batch_size, shared.corpus_seed)
    turn = steps[0] // passes.steps
    batch_steps = range(steps[0], min(steps[-1] + 1, (turn + 1) * passes.steps))
    drawn_LN = lanes.streams.uniform("batch", (len(studied.train),), turn, used_from=turn * passes.steps)
    order = _orders(passes, drawn_LN)
    batches = []
    for step in batch_steps:
        bucket, used = passes.bucket_at(step)
        first = used * shared.batch_size
        pairs_LB = order[bucket][:, first : first + shared.batch_size]
        batches.append(pairs_of(studied, pairs_LB, passes.buckets[bucket]))
    return batches


def evaluation_batch(lanes: TranslationLanes) -> Batch:
    """The held-out pairs, in buckets, as `<bucket>/<name>`, (L, ...).

    Besides those of `pairs_of`, names are, of one training: `is_judged`, (B,), whether `eval_loss` counts the pair;
    `is_short`, (B,); -log p of each target token under unigrams and bigrams, `unigram_nats` and `bigram_nats`, (B, T).
    With the grammar also -log p of each token given the source, `grammar_nats`, (B, T), and of each target sentence
    without it, `sentence_nats`, (B,).
    """
    shared = lanes.shared
    studied = studied_corpus(shared)
    n_lanes = len(lanes.trainings)
    batch: Batch = {}
    pairs = studied.held_out(VALID, shared.eval_sentences)
    for index, bucket in enumerate(by_length(studied.corpus, pairs, _EVAL_BUCKETS)):
        arrays = _reference_arrays(studied, bucket, judges_all=shared.train_on == "all")
        tensors = {
            name: torch.as_tensor(value, device=lanes.device, dtype=None if value.dtype == bool else lanes.dtype)
            for name, value in arrays.items()
        }
        words = pairs_of(studied, torch.as_tensor(bucket.pairs, device=lanes.device).unsqueeze(0), bucket)
        batch |= {f"{index}/{name}": value.expand(n_lanes, *value.shape[1:]) for name, value in words.items()}
        batch |= {f"{index}/{name}": value.expand(n_lanes, *value.shape) for name, value in tensors.items()}
    return batch


def pairs_of(studied: StudiedCorpus, pairs_LB: Tensor, bucket: Bucket) -> Batch:
    """The words of these pairs, on the device of `pairs_LB`: `source`, (L, B, S); `read`, which starts with SOS, and
    `target`, (L, B, T); and the frequency ranks of `source` and `read`, as `<name>_rarity`."""
    tables = _tables(studied, pairs_LB.device)
    source_LBS = tables["source"][pairs_LB, : bucket.n_source]
    read_LBT = tables["read"][pairs_LB, : bucket.n_target]
    return {
        "source": source_LBS,
        "read": read_LBT,
        "target": tables["target"][pairs_LB, : bucket.n_target],
        "source_rarity": tables["source_rarity"][source_LBS],
        "read_rarity": tables["target_rarity"][read_LBT],
    }


def parts_of(batch: Batch) -> list[Batch]:
    """Splits held-out data by bucket. Ignores tensors that belong to none."""
    buckets: dict[str, Batch] = {}
    for key, value in batch.items():
        bucket, _, name = key.partition("/")
        if name:
            buckets.setdefault(bucket, {})[name] = value
    return list(buckets.values())


@functools.lru_cache(maxsize=4)
def _passes(studied: StudiedCorpus, batch_size: int, seed: int) -> Passes:
    return Passes(studied.corpus, studied.train, batch_size, seed)


@functools.lru_cache(maxsize=4)
def _tables(studied: StudiedCorpus, device: torch.device) -> dict[str, Tensor]:
    corpus = studied.corpus
    arrays = {
        "source": corpus.source.tokens,
        "target": corpus.target.tokens,
        "read": np.where(corpus.target.tokens == PAD, PAD, preceding(corpus.target.tokens)),
        "source_rarity": studied.source_rarity,
        "target_rarity": studied.target_rarity,
    }
    return {name: torch.as_tensor(np.ascontiguousarray(value), device=device) for name, value in arrays.items()}


@functools.lru_cache(maxsize=4)
def _pairs(passes: Passes, device: torch.device) -> list[Tensor]:
    # Cached on the device: every step would wait for a copy.
    return [torch.as_tensor(bucket.pairs, device=device) for bucket in passes.buckets]


def _orders(passes: Passes, drawn_LN: Tensor) -> list[Tensor]:
    """By bucket, each training's random order of the pairs, (L, n)."""
    pairs = _pairs(passes, drawn_LN.device)
    drawn = torch.split(drawn_LN, [len(pairs_n) for pairs_n in pairs], dim=1)
    return [pairs_n[drawn_Ln.argsort(dim=1, stable=True)] for pairs_n, drawn_Ln in zip(pairs, drawn, strict=True)]


def _reference_arrays(studied: StudiedCorpus, bucket: Bucket, *, judges_all: bool) -> dict[str, NDArray[np.generic]]:
    target_BT = studied.corpus.target.tokens[bucket.pairs, : bucket.n_target]
    is_short_B = studied.is_short[bucket.pairs]
    arrays: dict[str, NDArray[np.generic]] = {
        "is_short": is_short_B,
        "is_judged": is_short_B | judges_all,
        "unigram_nats": studied.laws.unigram_nats(target_BT),
        "bigram_nats": studied.laws.bigram_nats(preceding(target_BT), target_BT),
    }
    gold = studied.corpus.gold
    if gold is not None:
        arrays["grammar_nats"] = gold.token_nats[bucket.pairs, : bucket.n_target]
        arrays["sentence_nats"] = gold.target_nats[bucket.pairs]
    return arrays
