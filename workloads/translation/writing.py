"""What ended translators write, and its BLEU scores. Axes: L lane, B sentence, T target token."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from attnsweep.workloads.engine.functional import parted
from attnsweep.workloads.engine.layout import selected
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.translation.corpus import EOS, PAD, TEST
from attnsweep.workloads.translation.data import TranslationLanes, by_length, pairs_of, studied_corpus
from attnsweep.workloads.translation.model import TranslationModel, greedy_words

_CHUNK_LANES = 16
"""How many trainings translate in one call. It bounds memory."""

Texts = Sequence[Sequence[int]]
"""Sentences as word numbers."""


def bleu(hypotheses: Texts, references: Texts) -> float:
    """Corpus BLEU as sacrebleu's without tokenization, 0 to 100; NaN without references.

    Source: Papineni et al. 2002, "BLEU: a method for automatic evaluation of machine translation"; Post 2018, "A call
    for clarity in reporting BLEU scores". Where no n-gram of a length is right, its precision is 1 / (2^k total), for
    the k-th such length (Chen & Cherry 2014, method 3).
    """
    n_ours, n_theirs = (sum(map(len, side)) for side in (hypotheses, references))
    if not n_theirs:
        return math.nan
    right, total = [0] * 4, [0] * 4
    for line in zip(hypotheses, references, strict=True):
        for n in range(4):
            ours, theirs = (Counter(zip(*(words[k:] for k in range(n + 1)), strict=False)) for words in line)
            right[n] += (ours & theirs).total()
            total[n] += ours.total()
    if not any(right) or not all(total):
        return 0.0
    misses = np.cumsum([not count for count in right])
    shares = [count / of if count else 0.5**miss / of for count, of, miss in zip(right, total, misses, strict=True)]
    brevity = min(1.0, math.exp(1 - n_theirs / n_ours))
    return 100.0 * brevity * math.exp(sum(map(math.log, shares)) / 4)


def bleu_scores(lanes: TranslationLanes, state: State) -> dict[str, NDArray[np.float64]]:
    """Of the test sentences as each training translates them: all, the short, the long ones."""
    studied = studied_corpus(lanes.shared)
    pairs = studied.held_out(TEST, lanes.shared.test_sentences)
    if not pairs.size:
        return {}
    template = TranslationModel(lanes.shared, studied).to(lanes.device, lanes.dtype)
    # One bucket, because all translations are padded to the same length, however long their sources.
    (bucket,) = by_length(studied.corpus, pairs, 1)
    target_NT, written = studied.corpus.target.tokens, []
    rarity_V = torch.as_tensor(studied.target_rarity, device=lanes.device)
    for chunk in torch.split(torch.arange(len(lanes.trainings)), _CHUNK_LANES):
        numbers = torch.as_tensor(bucket.pairs).expand(len(chunk), -1)
        words = pairs_of(studied, numbers.to(lanes.device), bucket)
        sources = {name: words[name] for name in ("source", "source_rarity")}
        own = parted(template, selected(state, chunk.to(lanes.device)))
        words_LBT = greedy_words(template, *own, sources, rarity_V, target_NT.shape[1])
        written += [_texts(words_BT) for words_BT in words_LBT.tolist()]
    references, is_short = _texts(target_NT[bucket.pairs].tolist()), studied.is_short[bucket.pairs]
    sets = {"all": np.ones_like(is_short), "short": is_short, "long": ~is_short}
    chosen = {name: np.flatnonzero(is_in) for name, is_in in sets.items() if is_in.any()}
    return {
        f"bleu_{name}": np.array([bleu([said[b] for b in rows], [references[b] for b in rows]) for said in written])
        for name, rows in chosen.items()
    }


def _texts(tokens_BT: Texts) -> list[list[int]]:
    return [[token for token in tokens if token not in (PAD, EOS)] for tokens in tokens_BT]
