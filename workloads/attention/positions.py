"""Encodings of positions that are not trained. Axes: P position, D model."""

import math

import torch
from torch import Tensor


def sinusoids(longest: int, D: int) -> Tensor:
    """sin(p / 10000^(2i/D)) and cos of the same, interleaved, (P, D) float64 (Vaswani et al. 2017, section 3.5)."""
    position_P1 = torch.arange(longest, dtype=torch.float64).unsqueeze(1)
    rate = torch.exp(torch.arange(0, D, 2, dtype=torch.float64) * (-math.log(10000.0) / D))
    found = torch.zeros(longest, D, dtype=torch.float64)
    found[:, 0::2] = torch.sin(position_P1 * rate)
    found[:, 1::2] = torch.cos(position_P1 * rate[: D // 2])
    return found
