"""The exact distance to matrices with a given support, in the entrywise L1 distance. Axes: T token, W half-width.

The family of a support: rows >= 0 that sum to 1 and vanish outside it. A row of A with sum r and mass s on its support
is (r - s) + |1 - s| away: the mass outside must go, and the mass on the support must become 1. No sampling, no solver.
Source: Conti 2024, section 2.2 (the families); docs/roles.md (the distances).
"""

import torch
from torch import Tensor


def row_costs(mass: Tensor, row_sum: Tensor) -> Tensor:
    """The distance of rows with the given mass on their support, and the given sum, from the family."""
    return (row_sum - mass) + (1.0 - mass).abs()


def distances_to_diagonal(attention: Tensor) -> Tensor:
    """(...) distances of (..., T, T) to Sigma_1: the identity."""
    return row_costs(attention.diagonal(dim1=-2, dim2=-1), attention.sum(-1)).sum(-1)


def distances_to_bands(attention: Tensor) -> Tensor:
    """(..., W) distances of (..., T, T) to Sigma_2(w), |i - j| <= w, for w = 0..T-1; they fall with w."""
    T = attention.shape[-1]
    apart_TT = _apart(T, attention.device)
    by_distance = torch.zeros_like(attention).scatter_add(-1, apart_TT.expand_as(attention), attention)
    mass_TW = by_distance.cumsum(-1)
    return row_costs(mass_TW, attention.sum(-1, keepdim=True)).sum(-2)


def band_support(n_tokens: int, window: int) -> Tensor:
    """(T, T) bool, the places within `window` tokens of the diagonal."""
    return _apart(n_tokens, torch.device("cpu")) <= window


def _apart(T: int, device: torch.device) -> Tensor:
    position = torch.arange(T, device=device)
    return (position.unsqueeze(0) - position.unsqueeze(1)).abs()
