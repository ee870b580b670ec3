"""What ended translators write, and its BLEU scores. Axes: L lane, B sentence, T target token."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import torch
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.functional import parted
from attnsweep.workloads.engine.layout import selected
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.translation.corpus import EOS, PAD, TEST, Side
from attnsweep.workloads.translation.data import TranslationLanes, by_length, pairs_of, studied_corpus
from attnsweep.workloads.translation.model import TranslationModel, greedy_words


@dataclass(frozen=True, slots=True)
class Written:
    """What one training wrote for one set of test sentences, and the correct texts; tokens separated by spaces."""

    name: str
    hypotheses: tuple[str, ...]
    references: tuple[str, ...]


def bleu(written: Written) -> float:
    """Corpus BLEU as sacrebleu's without tokenization, 0 to 100; NaN for an empty set.

    Source: Papineni et al. 2002, "BLEU: a method for automatic evaluation of machine translation"; Post 2018, "A call
    for clarity in reporting BLEU scores". Where no n-gram of a length is right, its precision is 1 / (2^k total), for
    the k-th such length (Chen & Cherry 2014, method 3).
    """
    lines = [
        (ours.split(), theirs.split()) for ours, theirs in zip(written.hypotheses, written.references, strict=True)
    ]
    n_ours, n_theirs = (sum(len(line[side]) for line in lines) for side in (0, 1))
    if not n_theirs:
        return math.nan
    right, total = [0] * 4, [0] * 4
    for line in lines:
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


def scores_of(sets: Sequence[tuple[Written, ...]]) -> dict[str, NDArray[np.float64]]:
    """BLEU of what trainings wrote, (n_trainings,) for each set of sentences."""
    names = [written.name for written in sets[0]]
    return {f"bleu_{name}": np.array([bleu(each[place]) for each in sets]) for place, name in enumerate(names)}


_LANES_AT_ONCE = 16


def write(lanes: TranslationLanes, state: State) -> list[tuple[Written, ...]]:
    """Translates the test sentences with each training: all, the short and the long ones."""
    template = TranslationModel(lanes.shared, studied_corpus(lanes.shared)).to(lanes.device, lanes.dtype)
    all_lanes = torch.arange(len(lanes.trainings))
    written: list[tuple[Written, ...]] = []
    for few in torch.split(all_lanes, _LANES_AT_ONCE):
        chosen = few.to(lanes.device)
        written += _write(template, lanes.select(chosen), selected(state, chosen))
    return written


def _write(template: TranslationModel, lanes: TranslationLanes, state: State) -> list[tuple[Written, ...]]:
    studied = studied_corpus(lanes.shared)
    target = studied.corpus.target
    pairs = studied.held_out(TEST, lanes.shared.test_sentences)
    if not pairs.size:
        return [()] * len(lanes.trainings)
    # One bucket, because all translations are padded to the same length, however long their sources.
    bucket = by_length(studied.corpus, pairs, 1)[0]
    numbers = torch.as_tensor(bucket.pairs).expand(len(lanes.trainings), -1)
    words = pairs_of(studied, numbers.to(lanes.device), bucket)
    sources: Batch = {name: words[name] for name in ("source", "source_rarity")}
    words_LBT = greedy_words(
        template,
        *parted(template, state),
        sources,
        torch.as_tensor(studied.target_rarity, device=lanes.device),
        target.tokens.shape[1],
    )
    references = _texts(target, target.tokens[bucket.pairs])
    is_short = studied.is_short[bucket.pairs]
    sets = {"all": np.ones_like(is_short), "short": is_short, "long": ~is_short}
    written = []
    for words_BT in words_LBT.cpu().numpy():
        hypotheses = _texts(target, words_BT)
        written.append(
            tuple(
                Written(name, tuple(compress(hypotheses, chosen)), tuple(compress(references, chosen)))
                for name, chosen in sets.items()
                if chosen.any()
            )
        )
    return written


def _texts(side: Side, tokens_BT: NDArray[np.int64]) -> list[str]:
    return [" ".join(side.words[token] for token in tokens if token not in (PAD, EOS)) for tokens in tokens_BT]
