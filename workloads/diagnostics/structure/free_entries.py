"""Exact distances to matrices P + E: P of a structured family, and a sparse E with at most m nonzero (free) entries.

P + E has rows >= 0 that sum to 1, as in the thesis after normalization, so E adds m places to the support of P. A row
with sum r and mass s on the support costs (r - s) + |1 - s|, which is convex in s. So if the entries of a row are added
to the support from the largest on, each gains at most as much as the one before, and the m largest gains over all rows
are the exact optimum. If the blocks of P are not fixed, the dynamic program also decides how many of the m entries each
row gets. Axes: N head, T token, F number of free entries used.
"""

import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.structure.blocks import check_blocks_fit
from attnsweep.workloads.diagnostics.structure.supports import row_costs


def support_with_free_entries(attention: Tensor, support_TT: Tensor, n_free: int) -> Tensor:
    """Returns the distances of attention (..., T, T) to a support plus 0..`n_free` free entries, (..., F)."""
    gains, cost = _gains(attention, support_TT.to(attention))
    return _after(gains.flatten(-2), cost.sum(-1), n_free)


def blocks_with_free_entries(
    attention: Tensor, window: int, num_pos: int, n_free: int, *, any_column: bool = False
) -> Tensor:
    """Returns the distances of attention (..., T, T) to Sigma_3(`window`, `num_pos`) plus 0..`n_free` free entries.

    They have the shape (..., F).

    Raises:
        SpecError: If the blocks do not fit.
    """
    T = attention.shape[-1]
    check_blocks_fit(T, window, num_pos)
    heads = attention.reshape(-1, T, T)
    on_diagonal, diagonal_cost = _gains(heads, torch.eye(T).to(heads))
    identity_rows = [_after(on_diagonal[:, i], diagonal_cost[:, i], n_free) for i in range(T)]
    infinite_NF = heads.new_full((len(heads), n_free + 1), torch.inf)
    zero_NF = torch.zeros_like(infinite_NF)
    least_by_row: list[list[Tensor]] = [[zero_NF] + [infinite_NF] * num_pos]
    for i in range(1, T + 1):
        least = [_least_sums(least_by_row[i - 1][p], identity_rows[i - 1]) for p in range(num_pos + 1)]
        if i >= window and num_pos:
            block_NF = _block(heads, i - window, window, n_free, any_column=any_column)
            for p in range(1, num_pos + 1):
                least[p] = torch.minimum(least[p], _least_sums(least_by_row[i - window][p - 1], block_NF))
        least_by_row.append(least)
    return least_by_row[T][num_pos].reshape(*attention.shape[:-2], n_free + 1)


def _block(heads: Tensor, start: int, window: int, n_free: int, *, any_column: bool) -> Tensor:
    """Returns the least distance of one block's rows with 0..`n_free` free entries, (N, F)."""
    rows = heads[:, start : start + window]
    best = heads.new_full((len(heads), n_free + 1), torch.inf)
    for column in range(start, start + window if any_column else start + 1):
        support = torch.zeros_like(rows[0])
        support[:, column] = 1.0
        gains, cost = _gains(rows, support)
        best = torch.minimum(best, _after(gains.flatten(-2), cost.sum(-1), n_free))
    return best


def _gains(attention: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """Returns by how much each further free entry of a row lowers the distance, (..., rows, T), largest entry first,
    and the rows' distances without free entries, (..., rows).
    """
    row_sum = attention.sum(-1, keepdim=True)
    mass = (attention * support).sum(-1, keepdim=True)
    outside = (attention * (1.0 - support)).sort(-1, descending=True).values
    costs = row_costs(torch.cat([mass, mass + outside.cumsum(-1)], -1), row_sum)
    return costs[..., :-1] - costs[..., 1:], costs[..., 0]


def _after(gains: Tensor, cost: Tensor, n_free: int) -> Tensor:
    """Returns the distance after the 0..`n_free` largest gains are subtracted, (..., F)."""
    largest = gains.topk(min(n_free, gains.shape[-1]), dim=-1).values.cumsum(-1)
    if largest.shape[-1] < n_free:
        last = largest[..., -1:] if largest.shape[-1] else torch.zeros_like(cost).unsqueeze(-1)
        largest = torch.cat([largest, last.expand(*last.shape[:-1], n_free - largest.shape[-1])], -1)
    return cost.unsqueeze(-1) - torch.cat([torch.zeros_like(cost).unsqueeze(-1), largest], -1)


def _least_sums(first_NF: Tensor, second_NF: Tensor) -> Tensor:
    """Returns min over k of first[k] + second[f - k], (N, F): the best split of f entries between two sets of rows."""
    n = first_NF.shape[-1]
    sums = [(first_NF[:, : f + 1] + second_NF[:, : f + 1].flip(-1)).min(-1).values for f in range(n)]
    return torch.stack(sums, -1)
