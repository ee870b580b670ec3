"""Factors of attention logits, selected by the parameter `attention_scale`. `log_n_inv_sqrt_d` depends on the number of
keys."""

from dataclasses import dataclass

import torch
from torch import Tensor

ATTENTION_SCALES = ("inv_sqrt_d", "one", "log_n_inv_sqrt_d")


@dataclass(frozen=True, slots=True)
class LogitScale:
    """A factor of attention logits: `scale`, times log n if `has_log_n`. Both are () tensors."""

    scale: Tensor
    has_log_n: Tensor

    def of(self, log_n: Tensor) -> Tensor:
        """Returns the factor for queries that see n keys each, in the shape of `log_n`."""
        return self.scale * torch.where(self.has_log_n, log_n, 1.0)


def logit_scale(attention_scale: str, d_head: int) -> LogitScale:
    """Builds the factor of the logits for a name in `ATTENTION_SCALES`; d is the number of channels of a head's key.

    - `inv_sqrt_d`: logits / sqrt(d), the usual scale.
    - `one`: logits unscaled.
    - `log_n_inv_sqrt_d`: logits log(n) / sqrt(d) for a query that sees n keys (Chiang & Cholak 2022, equation 2). With
      a causal mask n grows with the query's position. At n = 1 the factor is 0, which changes nothing: the softmax over
      one key is 1.
    """
    scale = 1.0 if attention_scale == "one" else d_head**-0.5
    return LogitScale(torch.tensor(scale, dtype=torch.float64), torch.tensor(attention_scale == "log_n_inv_sqrt_d"))
