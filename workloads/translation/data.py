"""Makes the batches of a pack of translators: sentence pairs for training, and held-out pairs for evaluation.

Axes: L lane, B sentence, S source token, T target token, N pair of the corpus.
"""

import functools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.engine.contract import Batch, Lanes
from attnsweep.workloads.translation.buckets import Bucket, Passes, by_length
from attnsweep.workloads.translation.corpus import PAD, VALID
from attnsweep.workloads.translation.dropout import masks
from attnsweep.workloads.translation.lookup import StudiedCorpus, studied_corpus
from attnsweep.workloads.translation.losses import preceding
from attnsweep.workloads.translation.parameters import TranslationParameters

TranslationLanes = Lanes[TranslationParameters]

_STEPS_AT_ONCE = 64
"""The number of steps whose batches are made together. With dropout it is 1, because masks are much larger than
words."""
_EVAL_BUCKETS = 4


def training_batches(lanes: TranslationLanes, steps: range) -> list[Batch]:
    """Returns the batches of the first steps of `steps`, at most 64, with dropout masks. Lanes differ in order."""
    shared = lanes.shared
    studied = studied_corpus(shared)
    passes = _passes(studied, shared.batch_size, shared.corpus_seed)
    turn = steps[0] // passes.steps
    at_once = 1 if shared.dropout else _STEPS_AT_ONCE
    batch_steps = range(steps[0], min(steps[0] + at_once, steps[-1] + 1, (turn + 1) * passes.steps))
    drawn_LN = lanes.streams.uniform("batch", (len(studied.train),), turn, used_from=turn * passes.steps)
    order = _orders(_pairs(passes, lanes.device), drawn_LN)
    batches = []
    for step in batch_steps:
        bucket, used = passes.bucket_at(step)
        first = used * shared.batch_size
        pairs_LB = order[bucket][:, first : first + shared.batch_size]
        words = pairs_of(studied, pairs_LB, passes.buckets[bucket])
        batches.append(words | masks(lanes, step, words))
    return batches


def evaluation_batch(lanes: TranslationLanes) -> Batch:
    """Returns held-out pairs in buckets by length, as tensors named `<bucket>/<name>`.

    Besides the words, each bucket has `is_judged` (B,), whether `eval_loss` counts the pair; `is_short` (B,); and -log
    p of each target token under the unigram and the bigram distribution, `unigram_nats` and `bigram_nats` (B, T). With
    the grammar it also has -log p of each token given the source, `grammar_nats` (B, T), and of each target sentence
    without the source, `sentence_nats` (B,).
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
    """Returns the words of sentence pairs from one bucket, on the device of `pairs_LB`.

    They are `source` (L, B, S); `read` (L, B, T), the words that the decoder reads, starting with SOS; `target`
    (L, B, T), the words that it should write; and the frequency ranks of `source` and `read`.
    """
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
    """Splits an evaluation batch into one batch per bucket. Ignores tensors that belong to no bucket."""
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
def _pairs(passes: Passes, device: torch.device) -> list[Tensor]:
    return [torch.as_tensor(bucket.pairs, device=device) for bucket in passes.buckets]


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


def _orders(pairs: list[Tensor], drawn_LN: Tensor) -> list[Tensor]:
    """Returns the order in which each lane takes each bucket's pairs in its present pass, (L, n)."""
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
