"""The exact distance to matrices with a given support, in the entrywise L1 norm. Axes: T token, W half-width.

The family of a support has all matrices whose rows are >= 0, sum to 1 and vanish outside the support. A row with sum r
and mass s on the support has the distance (r - s) + |1 - s|: the mass outside is removed, and the mass on the support
is changed to 1. So the distance needs neither sampling nor a solver. Source: Conti 2024, section 2.2 (the families);
docs/roles.md (the distances).
"""

import torch
from torch import Tensor


def row_costs(mass: Tensor, row_sum: Tensor) -> Tensor:
    """Returns the distance of each row to the family, given the row's mass on the family's support and its sum."""
    return (row_sum - mass) + (1.0 - mass).abs()


def distances_to_diagonal(attention: Tensor) -> Tensor:
    """Returns the distances of attention (..., T, T) to Sigma_1, which is the identity, (...)."""
    return row_costs(attention.diagonal(dim1=-2, dim2=-1), attention.sum(-1)).sum(-1)


def distances_to_bands(attention: Tensor) -> Tensor:
    """Returns the distances of attention (..., T, T) to Sigma_2(w), the band |i - j| <= w, (..., W), for w = 0..T-1.
    They decrease with w."""
    T = attention.shape[-1]
    apart_TT = _apart(T, attention.device)
    by_distance = torch.zeros_like(attention).scatter_add(-1, apart_TT.expand_as(attention), attention)
    mass_TW = by_distance.cumsum(-1)
    return row_costs(mass_TW, attention.sum(-1, keepdim=True)).sum(-2)


def band_support(n_tokens: int, window: int) -> Tensor:
    """Returns a mask of the entries within `window` tokens of the diagonal, (T, T) bool."""
    return _apart(n_tokens, torch.device("cpu")) <= window


def _apart(T: int, device: torch.device) -> Tensor:
    position = torch.arange(T, device=device)
    return (position.unsqueeze(0) - position.unsqueeze(1)).abs()
