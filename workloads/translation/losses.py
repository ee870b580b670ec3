"""The loss of a translator per word, and the losses of reference predictors that do not see the source.

Axes: N sentence of a corpus, B sentence of a batch, T target token, V word.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import log_softmax

from attnsweep.workloads.diagnostics.ngrams import CountedLaws
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.translation.corpus import PAD, SOS, Side


def smoothed_loss(logit_BTV: Tensor, target_BT: Tensor, label_smoothing: Tensor) -> Tensor:
    """Returns the cross-entropy with label smoothing e, a scalar in nats per token.

    The target is 1 - e at the word plus e spread evenly over all V words, as in `torch.nn.CrossEntropyLoss`. Padding
    does not count. Source: Szegedy et al. 2016, section 7.
    """
    log_p_BTV = log_softmax(logit_BTV, dim=-1)
    word_log_p_BT = log_p_BTV.gather(-1, target_BT.unsqueeze(-1)).squeeze(-1)
    nats_BT = -(1.0 - label_smoothing) * word_log_p_BT - label_smoothing * log_p_BTV.mean(-1)
    return _mean(nats_BT, target_BT != PAD)


def word_nats(logit_BTV: Tensor, target_BT: Tensor) -> Tensor:
    """Returns -log p of each word, (B, T), in nats, without smoothing; 0 at padding."""
    nats_BT = -log_softmax(logit_BTV, dim=-1).gather(-1, target_BT.unsqueeze(-1)).squeeze(-1)
    return nats_BT * (target_BT != PAD)


def mean_over(parts: list[Batch], value: str, among: str | None = None) -> Tensor:
    """Returns the mean of a quantity over the target tokens of all buckets.

    Args:
        parts: Buckets, each with `target` and the value, both (B, T); the value is 0 at padding.
        value: The name of the value.
        among: The name of a (B,) bool that selects sentences; if it selects none, the mean is NaN.
    """
    total, count = [], []
    for part in parts:
        counts_BT = part["target"] != PAD
        if among is not None:
            counts_BT = counts_BT & part[among].unsqueeze(1)
        total.append((part[value] * counts_BT).sum())
        count.append(counts_BT.sum())
    return torch.stack(total).sum() / torch.stack(count).sum()


def smoothed_nats(nats: Tensor, label_smoothing: Tensor, n_words: int) -> Tensor:
    """Turns a predictor's -log p into -log((1 - e) p + e / V): its loss if it mixes in label smoothing e."""
    return -((1.0 - label_smoothing) * torch.exp(-nats) + label_smoothing / n_words).log()


def _mean(value_BT: Tensor, counts_BT: Tensor) -> Tensor:
    return (value_BT * counts_BT).sum() / counts_BT.sum()


def counted_laws(side: Side, sentences: NDArray[np.int64]) -> CountedLaws:
    """Counts unigrams and bigrams of one language of a corpus, on the sentences with the given indices (n,)."""
    tokens = side.tokens[sentences]
    is_token = np.arange(tokens.shape[1]) < side.lengths[sentences, None]
    return CountedLaws(preceding(tokens)[is_token], tokens[is_token], len(side.words))


def preceding(tokens_NT: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the token before each token, (N, T), starting with SOS. The decoder reads these tokens."""
    return np.concatenate([np.full((len(tokens_NT), 1), SOS), tokens_NT[:, :-1]], axis=1)
