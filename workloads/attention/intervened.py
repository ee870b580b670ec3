"""Attention heads on which interventions act: weights fixed to a pattern, or logits multiplied by a factor.

Axes of one training: B sequence, H head, Q query token, K key token, C channel of a query.
"""

from functools import reduce

import torch
from torch import Tensor, nn

from attnsweep.workloads.interventions import BY_POSITION, CLAMP, LOGIT_FACTOR, PATTERNS, pattern_number


class HoldableHeads(nn.Module):
    """An attention layer whose heads can be clamped (to a fixed attention pattern) and scaled (in their logits).

    A subclass multiplies its queries by `scaled`, and takes its weights from `attended` or `clamped`.

    Args:
        n_heads: H.
        patterns: The names among `PATTERNS` that its heads can be clamped to.

    Attributes:
        clamp_H: For each head the `pattern_number` that it is clamped to, or 0; `None` where no training of a program
            clamps a head of this layer.
        logit_factor_H: The factor of each head's logits; `None` where no training of a program scales a head of it.
    """

    clamp_H: Tensor | None
    logit_factor_H: Tensor | None

    def __init__(self, n_heads: int, patterns: tuple[str, ...] = PATTERNS) -> None:
        super().__init__()
        self._n_heads = n_heads
        self.patterns = patterns
        self.register_buffer(CLAMP, None)
        self.register_buffer(LOGIT_FACTOR, None)

    @property
    def n_heads(self) -> int:
        """The number H of heads."""
        return self._n_heads

    def scaled(self, query_BHQC: Tensor) -> Tensor:
        """Multiplies the queries of each head by the head's factor; returns the same tensor if no head is scaled."""
        if self.logit_factor_H is None:
            return query_BHQC
        return query_BHQC * self.logit_factor_H.view(-1, 1, 1)


def clamped(weight_BHQK: Tensor, bias_BHQK: Tensor, clamp_H: Tensor | None, n_keys: int | None = None) -> Tensor:
    """Replaces the weights of clamped heads by their patterns; returns the same tensor if no head is clamped.

    Args:
        weight_BHQK: The attention weights that the heads computed.
        bias_BHQK: What was added to the logits: -infinity where a key is not seen. It broadcasts.
        clamp_H: For each head the number of its pattern, or 0; `None` if no head is clamped.
        n_keys: The number of keys that are tokens; those behind them fill up a vector. Default: all. The queries are
            the last of these tokens.
    """
    if clamp_H is None:
        return weight_BHQK
    (Q, K), dtype = weight_BHQK.shape[-2:], weight_BHQK.dtype
    seen_BHQK = (bias_BHQK > -torch.inf).to(dtype)
    position_K = torch.arange(K, device=weight_BHQK.device)
    position_Q1 = torch.arange(Q, device=weight_BHQK.device).unsqueeze(1) + ((n_keys or K) - Q)
    before_QK, own_QK, after_QK = ((position_K == position_Q1 + offset).to(dtype) for offset in (-1, 0, 1))
    number_H11 = clamp_H.view(-1, 1, 1)
    wanted_HQK = torch.where(number_H11 == pattern_number("next_token"), after_QK, own_QK)
    wanted_HQK = torch.where(number_H11 == pattern_number("previous_token"), before_QK, wanted_HQK)
    one_key_BHQK = wanted_HQK * seen_BHQK
    one_key_BHQK = one_key_BHQK + (1 - one_key_BHQK.sum(-1, keepdim=True)) * own_QK
    for names, pattern in (
        (BY_POSITION, one_key_BHQK),
        (("uniform",), seen_BHQK / seen_BHQK.sum(-1, keepdim=True)),
        (("none",), torch.zeros((), dtype=dtype, device=weight_BHQK.device)),
    ):
        is_clamped_H11 = reduce(torch.logical_or, [number_H11 == pattern_number(name) for name in names])
        weight_BHQK = torch.where(is_clamped_H11, pattern, weight_BHQK)
    return weight_BHQK
