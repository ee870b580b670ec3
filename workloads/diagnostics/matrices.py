"""Scores attention matrices by their weights alone; those that need tokens are in
`attnsweep.workloads.diagnostics.roles`. Axes: H head, T token, W half-width of a band."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.counts import count_roles
from attnsweep.workloads.diagnostics.roles.scores import POSITIONAL_SHARE, role_scores
from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.diagnostics.shuffles import permutation_test
from attnsweep.workloads.diagnostics.structure import (
    band_support,
    best_blocks,
    blocks_with_free_entries,
    check_blocks_fit,
    checked_attention,
    distances_to_bands,
    distances_to_blocks,
    distances_to_diagonal,
    support_with_free_entries,
)
from attnsweep.workloads.errors import SpecError, UserError

_MEASURED = ("positional_offset", "positional_share", "positional_mass", "previous_token", "previous_token_uniform")


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixScores:
    """Scores of attention matrices that need no tokens: those for roles such as `previous_token`, and the distances to
    Sigma_1 (the identity), Sigma_2 (bands) and Sigma_3 (the identity with blocks of rows that attend to one column).

    Attributes:
        scores: One number per matrix, by name; NaN if not defined. Distances are exact, in the entrywise L1 norm; `_z`
            compares one with those of the matrix's shuffles (far below 0 is nearer than chance), `_plus_e` is that to
            the family with free entries.
        is_positional: Whether the positional role holds.
        window, num_pos: The w and p at which distances are measured: Sigma_3 has p blocks of w rows, and Sigma_2 the
            half-width w.
        bands: The distance to the band of each half-width from 0, (n_matrices, n_tokens).
        starts, columns: The first rows of the blocks of the nearest member of Sigma_3, and the columns that they
            attend.
    """

    scores: dict[str, NDArray[np.float64]]
    is_positional: NDArray[np.bool_]
    window: NDArray[np.int64]
    num_pos: NDArray[np.int64]
    bands: NDArray[np.float64]
    starts: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[int, ...], ...]


def score_matrices(
    matrices: Tensor | NDArray[np.generic],
    *,
    window: int | None = None,
    num_pos: int | None = None,
    free_entries: int | None = None,
    any_row_sum: bool = False,
    is_causal: bool = False,
    subject: str = "attention",
) -> MatrixScores:
    """Computes the scores of attention matrices that need no tokens.

    Args:
        matrices: Weights after softmax, (n_matrices, n_tokens, n_tokens), rows are queries.
        window, num_pos: The w and p of the family Sigma_3: p blocks of w rows, each of which attends one column.
            `None`: the value at which the family is nearest, chosen for each head, and again for each shuffle of a
            head; blocks then have at least two rows.
        free_entries: Also measure distances to each family if so many further entries anywhere in the matrix are free.
        any_row_sum: Accept rows that do not sum to 1 (captured with dropout on).
        is_causal: Whether each query could see only the keys up to itself, among which entries are then shuffled.

    Raises:
        UserError: If the matrices are not attention matrices, or the blocks or the free entries do not fit into them.
    """
    attention = checked_attention(matrices, any_row_sum=any_row_sum, subject=subject)
    if attention.ndim != 3:
        expected = "an array of the shape (n_heads, n_tokens, n_tokens)"
        fix = "combine layers and heads into the first axis"
        raise UserError(subject, given=f"an array of the shape {tuple(attention.shape)}", expected=expected, fix=fix)
    T = attention.shape[-1]
    if free_entries is not None and not 0 <= free_entries <= T * T:
        expected = f"a number from 0 to {T * T}, the number of entries of the matrix"
        fix = f"set free_entries for example to the number of tokens, {T}"
        raise SpecError("free_entries", given=free_entries, expected=expected, fix=fix)
    allowed = _allowed(T, window, num_pos)
    distances_HWP = distances_to_blocks(attention).masked_fill(~allowed, torch.inf)
    best_place = distances_HWP.flatten(1).argmin(1)
    at_window, at_num_pos = best_place // distances_HWP.shape[-1] + 1, best_place % distances_HWP.shape[-1]
    bands = distances_to_bands(attention)
    distances: dict[str, Callable[[Tensor], Tensor]] = {
        "sigma_1": distances_to_diagonal,
        "sigma_2": lambda weights: _at_window(distances_to_bands(weights), at_window),
        "sigma_3": lambda weights: distances_to_blocks(weights).masked_fill(~allowed, torch.inf).flatten(-2).amin(-1),
    }
    all_tokens = torch.ones(1, attention.shape[-1], dtype=torch.bool)
    of_roles = role_scores(count_roles(attention.unsqueeze(1), Sentences(queries=all_tokens, keys=all_tokens)))
    scores = {name: of_roles[name] for name in _MEASURED}
    for name, distance in distances.items():
        test = permutation_test(attention, distance, is_causal=is_causal)
        scores |= {name: test.distance.numpy(), f"{name}_z": test.z.numpy()}
    placements = [
        best_blocks(head, w, p) for head, w, p in zip(attention, at_window.tolist(), at_num_pos.tolist(), strict=True)
    ]
    any_column = distances_to_blocks(attention, any_column=True).flatten(1)
    scores["sigma_3_any_column"] = any_column.gather(1, best_place.unsqueeze(1)).squeeze(1).numpy()
    if free_entries is not None:
        scores |= _plus_free_entries(attention, at_window.tolist(), at_num_pos.tolist(), free_entries)
    return MatrixScores(
        scores=scores,
        is_positional=scores["positional_share"] >= POSITIONAL_SHARE,
        window=at_window.numpy(),
        num_pos=at_num_pos.numpy(),
        bands=bands.numpy(),
        starts=tuple(tuple(placement.starts.tolist()) for placement in placements),
        columns=tuple(tuple(placement.columns.tolist()) for placement in placements),
    )


def _allowed(T: int, window: int | None, num_pos: int | None) -> Tensor:
    """Whether p blocks of w rows are allowed, at [w - 1, p] (Sigma_3)."""
    check_blocks_fit(T, window if window is not None else 1, num_pos if num_pos is not None else 0)
    w, p = torch.arange(1, T + 1).unsqueeze(1), torch.arange(T + 1).unsqueeze(0)
    fits = w * p <= T
    by_window = w == window if window is not None else (w >= 2) | (T == 1)
    by_num_pos = p == num_pos if num_pos is not None else p >= 1
    allowed = fits & by_window & by_num_pos
    if not allowed.any():
        # With no room for blocks of two rows, blocks of one row are allowed; they are the identity.
        allowed = fits & by_num_pos & (by_window if window is not None else w == 1)
    return allowed


def _plus_free_entries(
    attention: Tensor, windows: list[int], num_pos: list[int], n_free: int
) -> dict[str, NDArray[np.float64]]:
    T = attention.shape[-1]
    distances: dict[str, list[Tensor]] = {}
    for head, w, p in zip(attention, windows, num_pos, strict=True):
        head_distances = {
            "sigma_1": support_with_free_entries(head, band_support(T, 0), n_free),
            "sigma_2": support_with_free_entries(head, band_support(T, min(w, T - 1)), n_free),
            "sigma_3": blocks_with_free_entries(head, w, p, n_free),
            "sigma_3_any_column": blocks_with_free_entries(head, w, p, n_free, any_column=True),
        }
        for name, distance_F in head_distances.items():
            distances.setdefault(f"{name}_plus_e", []).append(distance_F[-1])
    return {name: torch.stack(values).numpy() for name, values in distances.items()}


def _at_window(bands: Tensor, window_H: Tensor) -> Tensor:
    index = window_H.clamp_max(bands.shape[-1] - 1).unsqueeze(-1)
    return bands.gather(-1, index.expand(*bands.shape[:-1], 1)).squeeze(-1)
