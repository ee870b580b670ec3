"""Replaces the attention weights of clamped heads by fixed patterns.

Axes of one training: B sequence, H head, Q query token, K key token. The queries are the last of the keys' tokens.
"""

import torch
from torch import Tensor

from attnsweep.workloads.interventions import pattern_number


def clamped(weight_BHQK: Tensor, bias_BHQK: Tensor, clamp_H: Tensor | None) -> Tensor:
    """Replaces the attention weights of clamped heads by their patterns; returns the others unchanged.

    Args:
        weight_BHQK: The weights that the heads computed.
        bias_BHQK: The bias that was added to the logits: -infinity where a key is not seen. It broadcasts.
        clamp_H: The `pattern_number` of a clamped head, 0 for other heads; `None` if no head may be clamped.
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
