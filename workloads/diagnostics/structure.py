"""Exact distances of attention matrices to structured matrices (identity, bands, blocks), in the entrywise L1 norm.

The families are those of Conti 2024, section 2.2. A family has all matrices whose entries are >= 0, whose rows sum to
1, and which are 0 outside a support: the diagonal for Sigma_1, the band |i - j| <= w for Sigma_2(w). A row whose
entries sum to r, those on the support to s, has the distance (r - s) + |1 - s|: the entries outside are removed, and
the sum on the support is changed to 1. So the distance needs neither sampling nor a solver.

Sigma_3(w, p) is the identity, except for p disjoint blocks of w rows, each of which attends to one column: that of the
block's first row (as in the thesis), or with `any_column` that of any of its rows, namely the one that saves most. Row
i costs c_i on the diagonal and C_ij on column j alone, so a block saves g = sum_i (c_i - C_ij), and

  best[i][p] = max(best[i - 1][p], best[i - w][p - 1] + g(i - w, w))

is the most that p blocks save in the first i rows. One pass over the rows per w computes it for all p and all heads.

A family plus m free entries has the matrices P + E, with P of the family and at most m nonzero entries in E. The rows
of P + E sum to 1, so E adds m places to the support of P. The cost of a row is convex in s. So if the entries of a row
are added to the support, the largest first, each gains at most as much as the one before, and the m largest gains over
all rows are the exact optimum. If the blocks of P are not fixed, the dynamic program also decides how many of the m
entries each row gets. See docs/roles.md.

Axes: N head, T token, W half-width, P number of blocks, S start of a block, F number of free entries used.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.errors import SpecError, UserError


def row_costs(mass: Tensor, row_sum: Tensor) -> Tensor:
    """Each row's distance to a family, by its sum and its `mass`: that of the entries where the family allows any."""
    return (row_sum - mass) + (1.0 - mass).abs()


def distances_to_diagonal(attention: Tensor) -> Tensor:
    return row_costs(attention.diagonal(dim1=-2, dim2=-1), attention.sum(-1)).sum(-1)


def distances_to_bands(attention: Tensor) -> Tensor:
    """Distances to Sigma_2(w), whose half-width w = 0, 1, ... is the last axis."""
    T = attention.shape[-1]
    apart_TT = _apart(T, attention.device)
    by_distance = torch.zeros_like(attention).scatter_add(-1, apart_TT.expand_as(attention), attention)
    mass_TW = by_distance.cumsum(-1)
    return row_costs(mass_TW, attention.sum(-1, keepdim=True)).sum(-2)


def band_support(n_tokens: int, window: int) -> Tensor:
    return _apart(n_tokens, torch.device("cpu")) <= window


def _apart(T: int, device: torch.device) -> Tensor:
    position = torch.arange(T, device=device)
    return (position.unsqueeze(0) - position.unsqueeze(1)).abs()


ROW_SUM_TOLERANCE = 1e-5
"""How far a row's sum may be from 1: more than softmax's rounding in float32, less than the effect of any dropout."""


def checked_attention(
    matrices: Tensor | NDArray[np.generic], *, any_row_sum: bool = False, subject: str = "attention"
) -> Tensor:
    """Attention matrices (the last two axes, rows are queries) in float64, or a `UserError`.

    With `any_row_sum` rows need not sum to 1: matrices may be captured with dropout on, such as the thesis's. Distances
    keep their meaning, as rows of structured matrices do sum to 1: a row of sum r is at least |r - 1| away from all.
    Scores that are sums of attention lose theirs.
    """
    attention = torch.as_tensor(matrices)
    if not (attention.is_floating_point() or attention.dtype in _INTEGERS):
        expected = "attention weights that are real numbers"
        raise UserError(subject, given=str(attention.dtype), expected=expected, fix="store the weights as float32")
    if attention.ndim < 2 or attention.shape[-1] != attention.shape[-2] or 0 in attention.shape:
        given, fix = f"an array of the shape {tuple(attention.shape)}", "remove padding from both queries and keys"
        raise UserError(subject, given=given, expected="square matrices: (..., n_tokens, n_tokens)", fix=fix)
    attention = attention.double()
    if not attention.isfinite().all():
        given = f"attention weights with {int((~attention.isfinite()).sum())} entries that are NaN or infinite"
        fix = "remove rows whose keys are all masked, which softmax turns into NaN"
        raise UserError(subject, given=given, expected="attention weights that are finite numbers", fix=fix)
    if (attention < 0).any():
        given = f"the negative entry {attention.min().item():.6g}"
        fix = "give the attention weights after the softmax, not the logits before it"
        raise UserError(subject, given=given, expected="weights that are probabilities, so at least 0", fix=fix)
    if not any_row_sum:
        _check_row_sums(attention, subject)
    return attention


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _check_row_sums(attention: Tensor, subject: str) -> None:
    sums = attention.sum(-1)
    if ((sums - 1.0).abs() <= ROW_SUM_TOLERANCE).all():
        return
    given = f"attention weights whose rows sum to {sums.min().item():.6g} up to {sums.max().item():.6g}"
    fix = "capture them in eval mode, in float32, with all keys; or accept any sum with any_row_sum (--any-row-sum)"
    raise UserError(subject, given=given, expected=f"rows that sum to 1 within {ROW_SUM_TOLERANCE:g}", fix=fix)


@dataclass(frozen=True, slots=True)
class BlockPlacement:
    """The nearest member of Sigma_3: its distance, its blocks' first rows, ascending, and the columns they attend
    to."""

    distance: Tensor
    starts: Tensor
    columns: Tensor


def distances_to_blocks(attention: Tensor, *, any_column: bool = False) -> Tensor:
    """Distances to Sigma_3(w, p), indexed [..., w - 1, p]; infinite where p w rows do not fit. A family has exactly p
    blocks, so those at [w - 1, 0] and [0, p] are to the identity."""
    T = attention.shape[-1]
    savings = _Savings(attention.reshape(-1, T, T), any_column=any_column)
    distances_TPN = attention.new_full((T, T + 1, savings.identity.shape[0]), torch.inf)
    for w in range(1, T + 1):
        distances_TPN[w - 1, : T // w + 1] = savings.identity - _most_saved(savings.of_blocks(w)[0], w)
    return distances_TPN.permute(2, 0, 1).reshape(*attention.shape[:-2], T, T + 1)


def best_blocks(attention: Tensor, window: int, num_pos: int, *, any_column: bool = False) -> BlockPlacement:
    """Finds the nearest member of Sigma_3(window, num_pos) to each matrix."""
    T = attention.shape[-1]
    check_blocks_fit(T, window, num_pos)
    savings = _Savings(attention.reshape(-1, T, T), any_column=any_column)
    gain_SN, column_SN = savings.of_blocks(window)
    best = _best(gain_SN, window, num_pos)
    heads = torch.arange(gain_SN.shape[1], device=attention.device)
    row = torch.full_like(heads, T)
    left = torch.full_like(heads, num_pos)
    starts = torch.zeros(num_pos, len(heads), dtype=torch.int64, device=attention.device)
    for i in range(T, 0, -1):
        is_here = (row == i) & (left > 0)
        skips = best[i - 1, left, heads] >= best[i, left, heads]
        ends = is_here & ~skips
        starts[left[ends] - 1, heads[ends]] = i - window
        row = torch.where(ends, i - window, torch.where(row == i, i - 1, row))
        left = left - ends.long()
    columns = column_SN.gather(0, starts)
    leading = attention.shape[:-2]
    return BlockPlacement(
        (savings.identity - best[-1, num_pos]).reshape(leading),
        starts.T.reshape(*leading, num_pos),
        columns.T.reshape(*leading, num_pos),
    )


def check_blocks_fit(n_tokens: int, window: int, num_pos: int) -> None:
    if not 1 <= window <= n_tokens:
        fix = "set a window that fits into the matrix"
        raise SpecError("window", given=window, expected=f"a width from 1 to the number of tokens, {n_tokens}", fix=fix)
    most = n_tokens // window
    if not 0 <= num_pos <= most:
        expected = f"a number of blocks from 0 to {most}, which is the number of tokens divided by window"
        raise SpecError("num_pos", given=num_pos, expected=expected, fix=f"lower num_pos, or lower window={window}")


class _Savings:
    """How much nearer attention is to the identity if all rows of a block of it attend to one column."""

    def __init__(self, attention_NTT: Tensor, *, any_column: bool) -> None:
        row_sum = attention_NTT.sum(-1, keepdim=True)
        cost = row_costs(attention_NTT, row_sum)
        diagonal = cost.diagonal(dim1=1, dim2=2)
        saved_TTN = (diagonal.unsqueeze(2) - cost).permute(1, 2, 0)
        T, _, N = saved_TTN.shape
        self.identity = diagonal.sum(1)
        self._any_column = any_column
        self._up_to = torch.cat([saved_TTN.new_zeros(1, T, N), saved_TTN.cumsum(0)])

    def of_blocks(self, w: int) -> tuple[Tensor, Tensor]:
        """The saving and the best column, (n_starts, n_heads), of each block of `w` adjacent rows."""
        T = self._up_to.shape[1]
        start = torch.arange(T - w + 1, device=self._up_to.device)
        if not self._any_column:
            gain_NS = self._up_to.diagonal(-w) - self._up_to.diagonal()[:, : T - w + 1]
            return gain_NS.T.contiguous(), start.unsqueeze(1).expand(-1, gain_NS.shape[0])
        column = start.unsqueeze(1) + torch.arange(w, device=start.device)
        gain, chosen = (self._up_to[start.unsqueeze(1) + w, column] - self._up_to[start.unsqueeze(1), column]).max(1)
        return gain, start.unsqueeze(1) + chosen


def _most_saved(gain_SN: Tensor, w: int) -> Tensor:
    """The largest saving by 0, 1, ... disjoint blocks of `w` rows, (n_numbers, n_heads)."""
    S, N = gain_SN.shape
    most = (S + w - 1) // w
    if most > 1:
        return _best(gain_SN, w, most)[-1]
    return torch.stack([gain_SN.new_zeros(N), gain_SN.amax(0)])


def _best(gain_SN: Tensor, w: int, most: int) -> Tensor:
    """The largest saving, indexed [i, p], by p disjoint blocks of `w` rows in the first i rows; -inf without room."""
    S, N = gain_SN.shape
    T = S + w - 1
    best = gain_SN.new_full((T + 1, most + 1, N), -torch.inf)
    best[:, 0] = 0.0
    # `unbind` splits all rows in one operation. On a GPU, each view of a single row would cost as much as a sum.
    fewer, as_many, gain = best[:, :-1].unbind(), best[:, 1:].unbind(), gain_SN.unbind()
    for i in range(w, T + 1):
        torch.maximum(as_many[i - 1], fewer[i - w] + gain[i - w], out=as_many[i])
    return best


def support_with_free_entries(attention: Tensor, support_TT: Tensor, n_free: int) -> Tensor:
    """Distances to the matrices that are zero outside `support_TT` but for 0 to `n_free` entries, the last axis."""
    gains, cost = _gains(attention, support_TT.to(attention))
    return _after(gains.flatten(-2), cost.sum(-1), n_free)


def blocks_with_free_entries(
    attention: Tensor, window: int, num_pos: int, n_free: int, *, any_column: bool = False
) -> Tensor:
    """Distances to Sigma_3(window, num_pos) plus 0 to `n_free` free entries, the last axis."""
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
    """The distance to a block whose rows attend to one column, by free entries: (n_heads, n_free + 1)."""
    rows = heads[:, start : start + window]
    best = heads.new_full((len(heads), n_free + 1), torch.inf)
    for column in range(start, start + window if any_column else start + 1):
        support = torch.zeros_like(rows[0])
        support[:, column] = 1.0
        gains, cost = _gains(rows, support)
        best = torch.minimum(best, _after(gains.flatten(-2), cost.sum(-1), n_free))
    return best


def _gains(attention: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """By how much each entry outside `support` lowers the distance, the largest first; and the distance."""
    row_sum = attention.sum(-1, keepdim=True)
    mass = (attention * support).sum(-1, keepdim=True)
    outside = (attention * (1.0 - support)).sort(-1, descending=True).values
    costs = row_costs(torch.cat([mass, mass + outside.cumsum(-1)], -1), row_sum)
    return costs[..., :-1] - costs[..., 1:], costs[..., 0]


def _after(gains: Tensor, cost: Tensor, n_free: int) -> Tensor:
    """The distance with 0, 1, ..., `n_free` free entries, as the last axis."""
    largest = gains.topk(min(n_free, gains.shape[-1]), dim=-1).values.cumsum(-1)
    if largest.shape[-1] < n_free:
        last = largest[..., -1:] if largest.shape[-1] else torch.zeros_like(cost).unsqueeze(-1)
        largest = torch.cat([largest, last.expand(*last.shape[:-1], n_free - largest.shape[-1])], -1)
    return cost.unsqueeze(-1) - torch.cat([torch.zeros_like(cost).unsqueeze(-1), largest], -1)


def _least_sums(first_NF: Tensor, second_NF: Tensor) -> Tensor:
    """For each f the minimum over k of first[k] + second[f - k]."""
    n = first_NF.shape[-1]
    sums = [(first_NF[:, : f + 1] + second_NF[:, : f + 1].flip(-1)).min(-1).values for f in range(n)]
    return torch.stack(sums, -1)
