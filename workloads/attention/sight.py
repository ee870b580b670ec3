"""Attention masks. Axes: B sequence (1 if all sequences have the same mask), Q query, K key."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sight:
    """An attention mask: the keys that the queries of an attention layer may see.

    Attributes:
        bias_BQK: The bias to add to the logits: 0, or -infinity where a key is not seen. Every query sees some key.
        log_n_BQ: The logarithm of the number of keys that a query sees.
    """

    bias_BQK: Tensor
    log_n_BQ: Tensor

    @classmethod
    def of(cls, seen_BQK: Tensor, dtype: torch.dtype) -> "Sight":
        """Makes a `Sight` from a boolean mask.

        Args:
            seen_BQK: bool, true where the key is seen. Every query must see a key: the softmax over no key is NaN, and
                so is its gradient.
            dtype: The dtype of the logits.
        """
        bias_BQK = torch.zeros_like(seen_BQK, dtype=dtype).masked_fill(~seen_BQK, -torch.inf)
        return cls(bias_BQK, seen_BQK.sum(-1).to(dtype).log())

    @classmethod
    def causal(cls, like: Tensor) -> "Sight":
        """Makes the causal mask: a token sees itself and all tokens before it.

        Args:
            like: Tokens (B, T, D), which give T, dtype and device.
        """
        T = like.shape[1]
        return cls.of(torch.ones(1, T, T, dtype=torch.bool, device=like.device).tril(), like.dtype)

    @classmethod
    def everything(cls, like: Tensor) -> "Sight":
        """Makes the mask with which every token sees all tokens. `like` is as in `causal`."""
        T = like.shape[1]
        return cls.of(torch.ones(1, T, T, dtype=torch.bool, device=like.device), like.dtype)
