"""The exact distance to Sigma_3(w, p), the identity in which p disjoint blocks of w rows attend to one column per
block.

Source: Conti 2024, section 2.2; the exact optimum by dynamic programming over rows (docs/roles.md, exact distances).
Row i costs c_i on the diagonal and C_ij on column j alone, so a block saves g = sum_i (c_i - C_ij), and

    best[i][p] = max(best[i - 1][p], best[i - w][p - 1] + g(i - w, w))

is the most that p blocks save in the first i rows. One pass over the rows per w computes it for all p and all heads. A
block's column is the index of its first row (as in the thesis), or with `any_column` the index of that of its rows that
saves most.
Axes: N head, T token, P number of blocks, S start of a block.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.structure.supports import row_costs
from attnsweep.workloads.errors import SpecError


@dataclass(frozen=True, slots=True)
class BlockPlacement:
    """The matrices of Sigma_3(w, p) that are nearest to some attention matrices: where the blocks are.

    Attributes:
        distance: (...) the distance of each matrix to its nearest member.
        starts: (..., p) the first rows of the blocks, ascending.
        columns: (..., p) the column that the rows of each block attend to.
    """

    distance: Tensor
    starts: Tensor
    columns: Tensor


def distances_to_blocks(attention: Tensor, *, any_column: bool = False) -> Tensor:
    """Returns the distances of attention (..., T, T) to all families Sigma_3(w, p), (..., T, T + 1), at [w - 1, p].
    They are infinite where p w > T. As a family has exactly p blocks, [w - 1, 0] and [0, p] are the distance to the
    identity.
    """
    T = attention.shape[-1]
    savings = _Savings(attention.reshape(-1, T, T), any_column=any_column)
    distances_TPN = attention.new_full((T, T + 1, savings.identity.shape[0]), torch.inf)
    for w in range(1, T + 1):
        distances_TPN[w - 1, : T // w + 1] = savings.identity - _most_saved(savings.of_blocks(w)[0], w)
    return distances_TPN.permute(2, 0, 1).reshape(*attention.shape[:-2], T, T + 1)


def best_blocks(attention: Tensor, window: int, num_pos: int, *, any_column: bool = False) -> BlockPlacement:
    """Finds for each matrix of attention (..., T, T) the nearest member of Sigma_3(`window`, `num_pos`).

    Raises:
        SpecError: If the blocks do not fit.
    """
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
    """Raises if `num_pos` blocks of `window` rows do not fit into a matrix of `n_tokens` rows.

    Raises:
        SpecError: If they do not fit.
    """
    if not 1 <= window <= n_tokens:
        raise SpecError(
            "window",
            given=window,
            expected=f"a width from 1 to the number of tokens, {n_tokens}",
            fix="set a window that fits into the matrix",
        )
    most = n_tokens // window
    if not 0 <= num_pos <= most:
        raise SpecError(
            "num_pos",
            given=num_pos,
            expected=f"a number of blocks from 0 to {most}, which is the number of tokens // window",
            fix=f"lower num_pos, or lower window={window}",
        )


class _Savings:
    """By how much each block is nearer than the identity's rows. Heads are the last axis, to vectorize over them."""

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
        """Returns each block's saving by its first row, (S, N), and its best column, (S, N), for blocks of height w."""
        T = self._up_to.shape[1]
        start = torch.arange(T - w + 1, device=self._up_to.device)
        if not self._any_column:
            gain_NS = self._up_to.diagonal(-w) - self._up_to.diagonal()[:, : T - w + 1]
            return gain_NS.T.contiguous(), start.unsqueeze(1).expand(-1, gain_NS.shape[0])
        column = start.unsqueeze(1) + torch.arange(w, device=start.device)
        gain, chosen = (self._up_to[start.unsqueeze(1) + w, column] - self._up_to[start.unsqueeze(1), column]).max(1)
        return gain, start.unsqueeze(1) + chosen


def _most_saved(gain_SN: Tensor, w: int) -> Tensor:
    """Returns the largest total saving of 0, 1, ... blocks of height w, up to the number that fits, (P, N)."""
    S, N = gain_SN.shape
    most = (S + w - 1) // w
    if most > 1:
        return _best(gain_SN, w, most)[-1]
    return torch.stack([gain_SN.new_zeros(N), gain_SN.amax(0)])


def _best(gain_SN: Tensor, w: int, most: int) -> Tensor:
    """Returns the largest total saving of p blocks in the first i rows, (T + 1, most + 1, N), at [i, p]; else -inf."""
    S, N = gain_SN.shape
    T = S + w - 1
    best = gain_SN.new_full((T + 1, most + 1, N), -torch.inf)
    best[:, 0] = 0.0
    # `unbind` splits all rows in one operation, because on a GPU each single view costs as much as a sum.
    fewer, as_many, gain = best[:, :-1].unbind(), best[:, 1:].unbind(), gain_SN.unbind()
    for i in range(w, T + 1):
        torch.maximum(as_many[i - 1], fewer[i - w] + gain[i - w], out=as_many[i])
    return best
