"""Exact distances of attention matrices to structured matrices (identity, bands, blocks), in the entrywise L1 norm.

The families are those of Conti 2024, section 2.2. A family has all matrices whose entries are >= 0, whose rows sum to
1, and which are 0 outside a support: the diagonal for Sigma_1, the band |i - j| <= w for Sigma_2(w). A row whose
entries sum to r, those on the support to s, has the distance (r - s) + |1 - s|: entries outside are removed, and the
sum on the support is changed to 1. So the distance needs neither sampling nor a solver.

Sigma_3(w, p) is the identity, except for p disjoint blocks of w rows, each of which attends to the column of its first
row. A block saves the difference g of its rows' costs, and the most that p blocks save in the first i rows is

  best[i][p] = max(best[i - 1][p], best[i - w][p - 1] + g(i - w, w))

A family plus m free entries has the matrices P + E, with at most m nonzero entries in E: these add m places to the
support of P. The cost of a row is convex in s, so the m largest gains over all rows are the exact optimum; if the
blocks of P are not fixed, the dynamic program also decides how many of the m entries each row gets.

Axes: N head, T token, W half-width of a band, from 0, or rows of a block, from 1; P number of blocks, from 0; S start
of a block; F number of free entries, from 0.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from attnsweep.workloads.errors import SpecError, UserError

ROW_SUM_TOLERANCE = 1e-5
"""How far a row's sum may be from 1: more than softmax's rounding in float32, less than the effect of any dropout."""


def checked_attention(
    matrices: Tensor | NDArray[np.generic], *, any_row_sum: bool = False, subject: str = "attention"
) -> Tensor:
    """Attention matrices (the last two axes, rows are queries) in float64, or a `UserError`. With `any_row_sum` rows
    need not sum to 1: a row of sum r is then at least |r - 1| away from all structured ones."""
    attention = torch.as_tensor(matrices)
    given = f"{str(attention.dtype).removeprefix('torch.')} of the shape {tuple(attention.shape)}"
    is_number = attention.dtype != torch.bool and not attention.is_complex()
    if not is_number or attention.ndim < 2 or attention.shape[-1] != attention.shape[-2] or 0 in attention.shape:
        expected = "square matrices of real numbers: (..., n_tokens, n_tokens)"
        raise UserError(subject, given=given, expected=expected, fix="remove padding from both queries and keys")
    attention = attention.double()
    given = f"entries from {attention.min().item():.6g} to {attention.max().item():.6g}"
    if not (attention >= 0).all() or attention.isinf().any():
        fix = "give the weights after the softmax, without rows whose keys are all masked"
        raise UserError(subject, given=given, expected="finite weights, at least 0", fix=fix)
    sums = attention.sum(-1)
    if not any_row_sum and (sums - 1.0).abs().max() > ROW_SUM_TOLERANCE:
        given = f"rows that sum to {sums.min().item():.6g} up to {sums.max().item():.6g}"
        fix = "capture them in eval mode, in float32, with all keys"
        raise UserError(subject, given=given, expected=f"rows that sum to 1 within {ROW_SUM_TOLERANCE:g}", fix=fix)
    return attention


def row_costs(mass: Tensor, row_sum: Tensor) -> Tensor:
    """Each row's distance to a family, by its sum and its `mass`, the sum on the support."""
    return (row_sum - mass) + (1.0 - mass).abs()


def distances_to_diagonal(attention: Tensor) -> Tensor:
    return row_costs(attention.diagonal(dim1=-2, dim2=-1), attention.sum(-1)).sum(-1)


def distances_to_bands(attention: Tensor) -> Tensor:
    """Distances to Sigma_2(w), whose half-width w = 0, 1, ... is the last axis."""
    distance_TT = _distances(attention.shape[-1], attention.device)
    by_distance = torch.zeros_like(attention).scatter_add(-1, distance_TT.expand_as(attention), attention)
    return row_costs(by_distance.cumsum(-1), attention.sum(-1, keepdim=True)).sum(-2)


def band_support(n_tokens: int, window: int) -> Tensor:
    return _distances(n_tokens, torch.device("cpu")) <= window


def _distances(T: int, device: torch.device) -> Tensor:
    position = torch.arange(T, device=device)
    return (position.unsqueeze(0) - position.unsqueeze(1)).abs()


def distances_to_blocks(attention: Tensor) -> Tensor:
    """Distances to Sigma_3(w, p), indexed [..., w - 1, p]; infinite where p w rows do not fit. A family has exactly p
    blocks, so those at [w - 1, 0] and [0, p] are to the identity."""
    T = attention.shape[-1]
    identity_N, saved_TTN = _saved(attention.reshape(-1, T, T))
    distances_TPN = attention.new_full((T, T + 1, len(identity_N)), torch.inf)
    for w in range(1, T + 1):
        distances_TPN[w - 1, : T // w + 1] = identity_N - _best(_gains_of_blocks(saved_TTN, w), w, T // w)[-1]
    return distances_TPN.permute(2, 0, 1).reshape(*attention.shape[:-2], T, T + 1)


@dataclass(frozen=True, slots=True)
class BlockPlacement:
    """The nearest member of Sigma_3 to each head: its distance, (N,), and the first rows of its blocks, ascending, (N,
    num_pos), which are also the columns that the blocks attend to."""

    distance: Tensor
    starts: Tensor


def best_blocks(attention: Tensor, window: int, num_pos: int) -> BlockPlacement:
    """The nearest member of Sigma_3(window, num_pos) to each matrix, (n_heads, n_tokens, n_tokens)."""
    N, T = attention.shape[:2]
    _check_blocks_fit(T, window, num_pos)
    identity_N, saved_TTN = _saved(attention)
    best = _best(_gains_of_blocks(saved_TTN, window), window, num_pos)
    heads = torch.arange(N, device=attention.device)
    row, left = torch.full_like(heads, T), torch.full_like(heads, num_pos)
    starts = torch.zeros(num_pos, N, dtype=torch.int64, device=attention.device)
    for i in range(T, 0, -1):
        skips = best[i - 1, left, heads] >= best[i, left, heads]
        ends = (row == i) & (left > 0) & ~skips
        starts[left[ends] - 1, heads[ends]] = i - window
        row = torch.where(ends, i - window, torch.where(row == i, i - 1, row))
        left = left - ends.long()
    return BlockPlacement(identity_N - best[-1, num_pos], starts.T)


def _check_blocks_fit(n_tokens: int, window: int, num_pos: int) -> None:
    if window < 1 or num_pos < 0 or window * num_pos > n_tokens:
        expected = f"num_pos blocks of at least one row, window * num_pos at most {n_tokens}, the number of tokens"
        raise SpecError("window and num_pos", given=(window, num_pos), expected=expected, fix="lower one of the two")


def _saved(attention_NTT: Tensor) -> tuple[Tensor, Tensor]:
    """The distance to the identity; and, [i, j], how much nearer the matrix with the first i rows on column j is."""
    cost = row_costs(attention_NTT, attention_NTT.sum(-1, keepdim=True))
    diagonal = cost.diagonal(dim1=1, dim2=2)
    return diagonal.sum(1), pad((diagonal.unsqueeze(2) - cost).permute(1, 2, 0).cumsum(0), (0, 0, 0, 0, 1, 0))


def _gains_of_blocks(saved_TTN: Tensor, w: int) -> Tensor:
    """The saving, (S, N), of a block of `w` rows."""
    n_starts = saved_TTN.shape[1] - w + 1
    return (saved_TTN.diagonal(-w) - saved_TTN.diagonal()[:, :n_starts]).T.contiguous()


def _best(gain_SN: Tensor, w: int, max_blocks: int) -> Tensor:
    """The largest saving, indexed [i, p], by p disjoint blocks of `w` rows in the first i rows; -inf without room."""
    S, N = gain_SN.shape
    best = gain_SN.new_full((S + w, max_blocks + 1, N), -torch.inf)
    best[:, 0] = 0.0
    # `unbind` splits all rows in one operation. On a GPU, each view of a single row would cost as much as a sum.
    fewer, as_many, gain = best[:, :-1].unbind(), best[:, 1:].unbind(), gain_SN.unbind()
    for i in range(w, S + w):
        torch.maximum(as_many[i - 1], fewer[i - w] + gain[i - w], out=as_many[i])
    return best


def support_with_free_entries(attention: Tensor, support_TT: Tensor, n_free: int) -> Tensor:
    """Distances to the matrices that are 0 outside `support_TT` but for 0 to `n_free` entries, the last axis."""
    row_sum, support = attention.sum(-1, keepdim=True), support_TT.to(attention)
    mass = (attention * support).sum(-1, keepdim=True)
    outside = (attention * (1.0 - support)).sort(-1, descending=True).values
    costs = row_costs(torch.cat([mass, mass + outside.cumsum(-1)], -1), row_sum)
    gains = pad((costs[..., :-1] - costs[..., 1:]).flatten(-2), (0, n_free)).topk(n_free).values
    return costs[..., 0].sum(-1, keepdim=True) - pad(gains.cumsum(-1), (1, 0))


def blocks_with_free_entries(attention: Tensor, window: int, num_pos: int, n_free: int) -> Tensor:
    """Distances of matrices (n_heads, n_tokens, n_tokens) to Sigma_3(window, num_pos) plus 0 to `n_free` free entries,
    the last axis."""
    T = attention.shape[-1]
    _check_blocks_fit(T, window, num_pos)
    eye_TT = torch.eye(T).to(attention)
    infinite_NF = attention.new_full((len(attention), n_free + 1), torch.inf)
    # [i][p]: the distance of the first i rows with p blocks, (N, F).
    distances = [[torch.zeros_like(infinite_NF)] + [infinite_NF] * num_pos]
    for i in range(1, T + 1):
        row_NF = support_with_free_entries(attention[:, i - 1 : i], eye_TT[i - 1 : i], n_free)
        by_number = [_minimal_sums(before_NF, row_NF) for before_NF in distances[-1]]
        start = i - window
        if start >= 0 and num_pos:
            block_NF = support_with_free_entries(attention[:, start:i], eye_TT[start].expand(window, T), n_free)
            with_block = [_minimal_sums(before_NF, block_NF) for before_NF in distances[start][:-1]]
            by_number[1:] = map(torch.minimum, by_number[1:], with_block)
        distances.append(by_number)
    return distances[-1][num_pos]


def _minimal_sums(first_NF: Tensor, second_NF: Tensor) -> Tensor:
    """For each f the minimum over k of first[k] + second[f - k]."""
    sums = [(first_NF[:, : f + 1] + second_NF[:, : f + 1].flip(-1)).min(-1).values for f in range(first_NF.shape[1])]
    return torch.stack(sums, -1)


FITS_SHARE = 0.5
"""Blocks, p of w rows, are considered if they fit into this share of the sentences. Our choice."""
BANDS = (1, 2, 4)
"""The half-widths w of the scores `sigma_2_w<w>`."""
SCORES = (
    "sigma_1",
    *(f"sigma_2_w{window}" for window in BANDS),
    *("sigma_2", "sigma_3", "sigma_3_window", "sigma_3_num_pos"),
)


class PooledStructure:
    """Mean distances per token of heads' attention to the identity, to bands and to blocks, over sentences of at most
    `longest` tokens."""

    def __init__(self, longest: int) -> None:
        self._longest, self._n_sentences = longest, 0
        self._diagonal = self._bands_W = self._blocks_WP = self._fits_WP = torch.zeros(())

    def add(self, attention: Tensor) -> None:
        """Adds sentences of one length, (..., n_sentences, n_tokens, n_tokens)."""
        B, T = attention.shape[-3:-1]
        more = self._longest - T
        fits_WP = (torch.arange(1, T + 1).unsqueeze(1) * torch.arange(T + 1) <= T).to(attention.device)
        blocks_WP = (distances_to_blocks(attention).sum(-3) / T).masked_fill(~fits_WP, 0.0)
        self._n_sentences += B
        self._diagonal = self._diagonal + distances_to_diagonal(attention).sum(-1) / T
        # A band wider than the sentence covers all keys, so its distance is 0.
        self._bands_W = self._bands_W + pad(distances_to_bands(attention).sum(-2) / T, (0, more))
        self._blocks_WP = self._blocks_WP + pad(blocks_WP, (0, more, 0, more))
        self._fits_WP = self._fits_WP + pad(fits_WP * float(B), (0, more, 0, more))

    def scores(self) -> dict[str, Tensor]:
        """By name, in the order of `SCORES`. `sigma_3` is the smallest distance to blocks of two or more rows: to
        `sigma_3_num_pos` of `sigma_3_window` rows; `sigma_2` is that to the band of this w."""
        is_candidate = self._fits_WP >= FITS_SHARE * self._n_sentences
        is_candidate[0] = False
        is_candidate[:, 0] = False
        means_WP = (self._blocks_WP / self._fits_WP).masked_fill(~is_candidate, torch.inf)
        sigma_3, place = means_WP.flatten(-2).min(-1)
        window, num_pos = place // means_WP.shape[-1] + 1, place % means_WP.shape[-1]
        scores = {f"sigma_2_w{w}": self._to_band(torch.full_like(window, w)) for w in BANDS}
        scores |= {"sigma_1": self._diagonal / self._n_sentences, "sigma_2": self._to_band(window), "sigma_3": sigma_3}
        scores |= {"sigma_3_window": window.to(sigma_3), "sigma_3_num_pos": num_pos.to(sigma_3)}
        return {name: scores[name] for name in SCORES}

    def _to_band(self, window: Tensor) -> Tensor:
        place = window.clamp(max=self._longest - 1).unsqueeze(-1)
        return self._bands_W.gather(-1, place).squeeze(-1) / self._n_sentences
