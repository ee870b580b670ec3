"""What a translator pays for each word, and what the reference laws would pay.

Axes: B sentence, T target token, V word.
"""

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.translation.corpus import PAD


def smoothed_loss(logit_BTV: Tensor, target_BT: Tensor, label_smoothing: Tensor) -> Tensor:
    """Cross-entropy in nats per token against (1 - e) of the word and e spread over all V words.

    As `torch.nn.CrossEntropyLoss`; padding does not count. Source: Szegedy et al. 2016, section 7.
    """
    log_p_BTV = log_softmax(logit_BTV, dim=-1)
    of_word_BT = log_p_BTV.gather(-1, target_BT.unsqueeze(-1)).squeeze(-1)
    nats_BT = -(1.0 - label_smoothing) * of_word_BT - label_smoothing * log_p_BTV.mean(-1)
    return _mean(nats_BT, target_BT != PAD)


def word_nats(logit_BTV: Tensor, target_BT: Tensor) -> Tensor:
    """(B, T) -log p of each word, in nats, without smoothing; 0 at padding."""
    nats_BT = -log_softmax(logit_BTV, dim=-1).gather(-1, target_BT.unsqueeze(-1)).squeeze(-1)
    return nats_BT * (target_BT != PAD)


def mean_over(parts: list[Batch], value: str, among: str | None = None) -> Tensor:
    """The mean of a value over target tokens of all buckets.

    Args:
        parts: Buckets, each with `value`, (B, T), 0 at padding, and `target`.
        value: Its name.
        among: Name of a (B,) bool that chooses sentences; NaN where it chooses none.
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
    """What a law pays that gives the word (1 - e) p + e / V instead of p: the best under label smoothing."""
    return -((1.0 - label_smoothing) * torch.exp(-nats) + label_smoothing / n_words).log()


def _mean(value_BT: Tensor, counts_BT: Tensor) -> Tensor:
    return (value_BT * counts_BT).sum() / counts_BT.sum()
