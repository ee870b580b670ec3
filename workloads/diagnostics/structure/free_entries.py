"""Distances to a structured family plus a sparse E, which may use at most m entries outside the structure.

X = P + E has rows >= 0 that sum to 1, as in the thesis after normalization, so E adds m places to the support. A row
costs (r - s) + |1 - s|, which is convex in the mass s. Taken largest entry first, the entries of a row therefore gain
less and less, and the m largest gains over all rows are the exact optimum. If the blocks are not fixed, the dynamic
program also decides how many of the m entries each row gets. Axes: N head, T token, F number of free entries used.
"""

import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.structure.blocks import check_blocks_fit
from attnsweep.workloads.diagnostics.structure.supports import row_costs


def support_with_free_entries(attention: Tensor, support_TT: Tensor, n_free: int) -> Tensor:
    """(..., F) distances of (..., T, T) to a support and 0..`n_free` free entries."""
    gains, cost = _gains(attention, support_TT.to(attention))
    return _after(gains.flatten(-2), cost.sum(-1), n_free)


def blocks_with_free_entries(
    attention: Tensor, window: int, num_pos: int, n_free: int, *, any_column: bool = False
) -> Tensor:
    """(..., F) distances of (..., T, T) to Sigma_3(`window`, `num_pos`) and 0..`n_free` free entries.

    Raises:
        SpecError: If the blocks do not fit.
    """
    T = attention.shape[-1]
    check_blocks_fit(T, window, num_pos)
    heads = attention.reshape(-1, T, T)
    on_diagonal, diagonal_cost = _gains(heads, torch.eye(T).to(heads))
    plain = [_after(on_diagonal[:, i], diagonal_cost[:, i], n_free) for i in range(T)]
    none = heads.new_full((len(heads), n_free + 1), torch.inf)
    zero = torch.zeros_like(none)
    before: list[list[Tensor]] = [[zero] + [none] * num_pos]
    for i in range(1, T + 1):
        row = [_either_of_sums(before[i - 1][p], plain[i - 1]) for p in range(num_pos + 1)]
        if i >= window and num_pos:
            block = _block(heads, i - window, window, n_free, any_column=any_column)
            for p in range(1, num_pos + 1):
                row[p] = torch.minimum(row[p], _either_of_sums(before[i - window][p - 1], block))
        before.append(row)
    return before[T][num_pos].reshape(*attention.shape[:-2], n_free + 1)


def _block(heads: Tensor, start: int, window: int, n_free: int, *, any_column: bool) -> Tensor:
    """(N, F) the least cost of the rows of one block."""
    rows = heads[:, start : start + window]
    best = heads.new_full((len(heads), n_free + 1), torch.inf)
    for column in range(start, start + window if any_column else start + 1):
        support = torch.zeros_like(rows[0])
        support[:, column] = 1.0
        gains, cost = _gains(rows, support)
        best = torch.minimum(best, _after(gains.flatten(-2), cost.sum(-1), n_free))
    return best


def _gains(attention: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """(..., rows, T) the gain of each further entry of a row, largest entry first; (..., rows) costs without
    entries."""
    row_sum = attention.sum(-1, keepdim=True)
    mass = (attention * support).sum(-1, keepdim=True)
    outside = (attention * (1.0 - support)).sort(-1, descending=True).values
    costs = row_costs(torch.cat([mass, mass + outside.cumsum(-1)], -1), row_sum)
    return costs[..., :-1] - costs[..., 1:], costs[..., 0]


def _after(gains: Tensor, cost: Tensor, n_free: int) -> Tensor:
    """(..., F) the cost minus its 0..n_free largest gains."""
    largest = gains.topk(min(n_free, gains.shape[-1]), dim=-1).values.cumsum(-1)
    if largest.shape[-1] < n_free:
        last = largest[..., -1:] if largest.shape[-1] else torch.zeros_like(cost).unsqueeze(-1)
        largest = torch.cat([largest, last.expand(*last.shape[:-1], n_free - largest.shape[-1])], -1)
    return cost.unsqueeze(-1) - torch.cat([torch.zeros_like(cost).unsqueeze(-1), largest], -1)


def _either_of_sums(one: Tensor, other: Tensor) -> Tensor:
    """(N, F) min over k of one[k] + other[F - k]: the best split of the entries between two sets of rows."""
    n = one.shape[-1]
    sums = [(one[:, : f + 1] + other[:, : f + 1].flip(-1)).min(-1).values for f in range(n)]
    return torch.stack(sums, -1)
