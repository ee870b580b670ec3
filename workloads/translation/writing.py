"""Translates the test sentences greedily with ended trainings.

Axes: L lane, B sentence, T target token, V word.
"""

from itertools import compress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Batch, Written
from attnsweep.workloads.engine.functional import over_lanes, parted
from attnsweep.workloads.engine.layout import selected
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.translation.corpus import EOS, PAD, SOS, TEST, Side
from attnsweep.workloads.translation.data import TranslationLanes, by_length, pairs_of, studied_corpus
from attnsweep.workloads.translation.model import TranslationModel


def greedy_words(
    template: nn.Module, parameters: State, buffers: State, sources: Batch, rarity_V: Tensor, n_words: int
) -> Tensor:
    """Translates each source with each training, greedily word by word: (L, B, T) int64, with PAD from EOS on.

    Args:
        template: The module of ONE training, which maps a batch to logits (B, T, V).
        parameters, buffers: The parameters and buffers of the trainings, (L, ...) by name.
        sources: `source` and `source_rarity`, (L, B, S).
        rarity_V: The frequency ranks of the target's words.
        n_words: The largest number of words per sentence; longer translations are cut.
    """
    last_logit = over_lanes(template, lambda module, batch: module(batch)[:, -1])
    source_LBS = sources["source"]
    read_LBT = torch.full((*source_LBS.shape[:2], 1), SOS, device=source_LBS.device)
    has_ended_LB = torch.zeros(source_LBS.shape[:2], dtype=torch.bool, device=source_LBS.device)
    with torch.no_grad():
        while read_LBT.shape[2] <= n_words and not has_ended_LB.all():
            batch = sources | {"read": read_LBT, "read_rarity": rarity_V[read_LBT]}
            word_LB = last_logit(parameters, buffers, batch).argmax(-1)
            has_ended_LB = has_ended_LB | (word_LB == EOS)
            read_LBT = torch.cat([read_LBT, word_LB.masked_fill(has_ended_LB, PAD).unsqueeze(-1)], dim=-1)
    return read_LBT[..., 1:]


_LANES_AT_ONCE = 16


def write(template: TranslationModel, lanes: TranslationLanes, state: State) -> list[tuple[Written, ...]]:
    """Translates the test sentences with each training: the sets of all, short and long sentences, with references.

    `template` is a model of the pack's shape; `state` has parameters and buffers, (L, ...) by name.
    """
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
    # All sentences go into one bucket, because all translations are padded to the same length whatever the length of
    # the sources.
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
