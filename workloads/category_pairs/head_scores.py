"""Scores which of the three solutions of Shin & Matzinger a full model implements, by the blocks of its attention
matrices k^t q (keys times queries) and v (values). With categories c and positions p as rows and columns

    solution 1: k^t q on pp, like U; v on cc, and not like q*^t: the table q* sits in the feed-forward part
    solution 2: k^t q on cc, like q*; v on pp, like U^t
    solution 3: k^t q on pp, like U; v on cc, like q*^t

`share_*` are shares of squared norm; `match_*` are absolute correlations, without what the rest of the model could
absorb: the column means of cc blocks (but in `match_values_identity`), the diagonal of pp blocks (the skip connection)
and position 1. v is matched row by row, because hidden units read each with a sign and scale of their own; the mean for
noise is near sqrt(2 / (pi (N - 1))). `solution_<k>` is the smallest of the solution's two shares and two matches ("not
like": 1 minus the match).

Axes: L lane, N category, M position, S token row that logits see, V token row that values see.
Source: Shin & Matzinger 2025, sections 2.1-2.3 and 4.1; cut-offs ours.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.engine.contract import HeadScores
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.vocabulary import NO_ROLE

HOLDS = 0.5
TAKES_PART = 0.1
"""A solution is part of a mixture if its matches reach `HOLDS`, and its blocks' shares this."""

LABELS = ("solution_1", "solution_2", "solution_3", "mixed", NO_ROLE)


def solution_scores(
    variant: str, logits_LSS: Tensor, values_LVV: Tensor, target_LNN: Tensor
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.str_]]:
    """The scores, (L,) by name, NaN where a block is zero, constant or missing in the variant; and the solution that
    each training implements, among `LABELS`.

    Args:
        variant: Decides the matrices' rows: positions, categories, or both with categories first (`combined`).
        logits_LSS: k^t q; rows are of keys, columns of queries.
        values_LVV: v; columns are read, rows written.
        target_LNN: q*; rows are the previous category, columns the current one.
    """
    N = target_LNN.shape[1]
    M = {"combined": logits_LSS.shape[1] - N, "solution_2": values_LVV.shape[1]}.get(variant, logits_LSS.shape[1])
    logits = _padded(logits_LSS, N, M, on_positions=variant in ("solution_1", "solution_3")).double()
    values = _padded(values_LVV, N, M, on_positions=variant == "solution_2").double()
    target = target_LNN.double()
    scores = {f"share_logits_{name}": share for name, share in _shares(logits, N).items()}
    scores |= {f"share_values_{name}": share for name, share in _shares(values, N).items()}
    predicted_M = torch.arange(M, device=logits.device) > 0
    is_other_MM = ~torch.eye(M, dtype=torch.bool, device=logits.device)
    shift_MM = torch.diag(torch.ones(M - 1, dtype=torch.float64, device=logits.device), diagonal=1)
    scores |= {
        "match_logits_shift": _match(logits[:, N:, N:], shift_MM, is_other_MM & predicted_M),
        "match_logits_target": _match(_centre(logits[:, :N, :N]), _centre(target)),
        "match_values_shift": _match_rows(values[:, N + 1 :, N:], shift_MM.T[1:], is_other_MM[1:]),
        "match_values_target": _match_rows(_centre(values[:, :N, :N]), _centre(target.mT)),
        "match_values_identity": _match_rows(values[:, :N, :N], torch.eye(N, dtype=values.dtype, device=values.device)),
    }
    blocks = {name: torch.minimum(scores["share_logits_pp"], scores["share_values_cc"]) for name in ("1", "3")}
    blocks["2"] = torch.minimum(scores["share_logits_cc"], scores["share_values_pp"])
    matches = {
        "1": torch.minimum(scores["match_logits_shift"], 1.0 - scores["match_values_target"]),
        "2": torch.minimum(scores["match_logits_target"], scores["match_values_shift"]),
        "3": torch.minimum(scores["match_logits_shift"], scores["match_values_target"]),
    }
    scores |= {f"solution_{name}": torch.minimum(blocks[name], matches[name]) for name in blocks}
    holds = [scores[f"solution_{name}"] >= HOLDS for name in ("1", "2", "3")]
    in_1, in_2, in_3 = ((blocks[name] >= TAKES_PART) & (matches[name] >= HOLDS) for name in ("1", "2", "3"))
    cases = [*holds, in_2 & (in_1 | in_3)]
    # Two copies, of all scores and of all conditions: the host waits for the device at each.
    numbers = dict(zip(scores, torch.stack(list(scores.values())).cpu().numpy(), strict=True))
    return numbers, np.select(list(torch.stack(cases).cpu().numpy()), LABELS[:4], LABELS[4])


def _padded(matrix_LXX: Tensor, N: int, M: int, *, on_positions: bool) -> Tensor:
    if matrix_LXX.shape[1] == N + M:
        return matrix_LXX
    return pad(matrix_LXX, (N, 0, N, 0) if on_positions else (0, M, 0, M))


def _shares(matrix: Tensor, N: int) -> dict[str, Tensor]:
    squares = matrix.square()
    total = squares.sum((1, 2))
    rows = {"c": slice(0, N), "p": slice(N, None)}
    return {
        f"{row}{column}": squares[:, rows[row], rows[column]].sum((1, 2)) / total for row in rows for column in rows
    }


def _centre(matrix: Tensor) -> Tensor:
    return matrix - matrix.mean(1, keepdim=True)


def _match(matrix: Tensor, pattern: Tensor, where: Tensor | None = None) -> Tensor:
    weight = torch.ones_like(matrix[0]) if where is None else where.to(matrix)
    return _correlation(matrix.flatten(1), pattern.expand_as(matrix).flatten(1), weight.flatten()).abs()


def _match_rows(matrix: Tensor, pattern: Tensor, where: Tensor | None = None) -> Tensor:
    weight = torch.ones_like(matrix[0]) if where is None else where.to(matrix)
    return _correlation(matrix, pattern.expand_as(matrix), weight).abs().mean(1)


def _correlation(matrix: Tensor, pattern: Tensor, weight: Tensor) -> Tensor:
    count = weight.sum(-1, keepdim=True)
    x, y = (weight * (side - (weight * side).sum(-1, keepdim=True) / count) for side in (matrix, pattern))
    return (x * y).sum(-1) / (x.square().sum(-1) * y.square().sum(-1)).sqrt()


_BLOCKS = ("cc", "cp", "pc", "pp")
SCORE_NAMES = (
    *(f"share_{matrix}_{block}" for matrix in ("logits", "values") for block in _BLOCKS),
    *("match_logits_shift", "match_logits_target"),
    *("match_values_shift", "match_values_target", "match_values_identity"),
    *LABELS[:3],
)


def score_full_heads(parameters: CategoryPairsParameters, state: State) -> HeadScores:
    """The role of a head is among `LABELS`."""
    logits_LSS = state["kq_SS"] if "kq_SS" in state else state["k_SS"].mT @ state["q_SS"]
    scores, label = solution_scores(parameters.variant, logits_LSS, state["v_VV"], state["target_NN"])
    by_head = {name: np.asarray(scores[name], dtype=np.float64).reshape(-1, 1, 1) for name in SCORE_NAMES}
    return HeadScores(scores=by_head, role=label.reshape(-1, 1, 1))
