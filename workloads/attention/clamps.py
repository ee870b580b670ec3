"""Attention weights that are fixed in place of those that a head computes.

Axes of one training: B sequence, H head, Q query token, K key token. The queries are the last of the keys' tokens.
"""

import torch
from torch import Tensor

from attnsweep.workloads.interventions import pattern_number


def clamped(weight_BHQK: Tensor, bias_BHQK: Tensor, clamp_H: Tensor | None) -> Tensor:
    """The weights, those of clamped heads replaced by their pattern; the same tensor if no head may be clamped.

    Args:
        weight_BHQK: What the heads computed.
        bias_BHQK: What was added to the logits: -infinity where a key is not seen. It broadcasts.
        clamp_H: 0, or the number of its pattern, for each head; `None` as above.
    """
    if clamp_H is None:
        return weight_BHQK
    (Q, K), dtype = weight_BHQK.shape[-2:], weight_BHQK.dtype
    seen_BHQK = (bias_BHQK > -torch.inf).to(dtype)
    position_K = torch.arange(K, device=weight_BHQK.device)
    before_Q = (position_K[K - Q :] - 1).clamp(min=0)
    patterns = {
        "previous_token": (position_K == before_Q.unsqueeze(1)).to(dtype),
        "uniform": seen_BHQK / seen_BHQK.sum(-1, keepdim=True),
        "none": torch.zeros((), dtype=dtype, device=weight_BHQK.device),
    }
    number_H11 = clamp_H.view(-1, 1, 1)
    for name, pattern in patterns.items():
        weight_BHQK = torch.where(number_H11 == pattern_number(name), pattern, weight_BHQK)
    return weight_BHQK
