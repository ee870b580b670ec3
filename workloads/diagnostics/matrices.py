"""Scores attention matrices by their weights alone, and tests whether they are nearer to structured matrices than their
own shuffled versions are. Axes: H head, T token, W rows of a block, from 1, P number of blocks, from 0.

Structured are the identity (Sigma_1), bands (Sigma_2), and the identity with p blocks of w rows that attend to one
column (Sigma_3). They are nested and of different sizes, so distances to different families cannot be compared
directly. A shuffled matrix keeps the entries of each row (and so its entropy) but not the positions that they attend.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.roles.counts import count_roles
from attnsweep.workloads.diagnostics.roles.scores import POSITIONAL_SHARE, role_scores
from attnsweep.workloads.diagnostics.roles.sentences import Sentences
from attnsweep.workloads.diagnostics.structure import (
    best_blocks,
    checked_attention,
    distances_to_bands,
    distances_to_blocks,
    distances_to_diagonal,
)
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.errors import UserError

N_PERMUTATIONS = 100
_SEED = 0
_ELEMENTS_AT_ONCE = 2**24
_MEASURED = ("positional_offset", "positional_share", "positional_mass", "previous_token", "previous_token_uniform")


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """The `distance` of each matrix, and `mean` and `deviation` of its shuffles'. A z = (distance - mean) / deviation
    far below 0 means nearer than chance; it is NaN if shuffling changes nothing."""

    distance: Tensor
    mean: Tensor
    deviation: Tensor

    @property
    def z(self) -> Tensor:
        rounding = 1e-9 * self.mean.abs().clamp_min(1.0)
        return torch.where(self.deviation > rounding, (self.distance - self.mean) / self.deviation, torch.nan)


def permutation_test(
    attention: Tensor, distance: Callable[[Tensor], Tensor], *, is_causal: bool = False
) -> PermutationTest:
    """Compares each matrix with its shuffles, by the same permutations in all calls. `distance` itself chooses the
    nearest of several families, so that it is chosen for each shuffle too. With `is_causal` only the entries j <= i of
    row i are shuffled: otherwise any causal matrix would look structured."""
    T = attention.shape[-1]
    n_at_once = max(1, _ELEMENTS_AT_ONCE // attention.numel())
    distances = []
    for first in range(0, N_PERMUTATIONS, n_at_once):
        steps = range(first, min(first + n_at_once, N_PERMUTATIONS))
        places = torch.stack([_places(T, step, is_causal=is_causal) for step in steps])
        shape = (len(places), *attention.shape)
        places = places.view(-1, *[1] * (attention.ndim - 2), T, T).expand(shape).to(attention.device)
        distances.append(distance(attention.expand(shape).gather(-1, places)))
    shuffled = torch.cat(distances)
    return PermutationTest(distance(attention), shuffled.mean(0), shuffled.std(0))


@functools.lru_cache(maxsize=4096)
def _places(T: int, step: int, *, is_causal: bool) -> Tensor:
    order_TT = Streams(torch.tensor([_SEED])).uniform("structure.permutation", (T, T), step)[0]
    if is_causal:
        # Keys after the query get increasing numbers above the random ones, so they stay where they are.
        order_TT = torch.where(torch.ones(T, T).triu(1) > 0, 1.0 + torch.arange(T), order_TT)
    return order_TT.argsort(-1)


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixScores:
    """What `score_matrices` returns.

    Attributes:
        scores: One number per matrix, by name; NaN if not defined. The distances `sigma_1`, `sigma_2`, `sigma_3` are
            exact, in the entrywise L1 norm; `<name>_z` compares one with those of the matrix's shuffles.
        is_positional: Whether the positional role holds.
        window, num_pos: The w >= 2 and p >= 1 of the nearest member of Sigma_3; w is also the half-width of `sigma_2`.
        starts: The first rows of its blocks, which are also the columns they attend.
    """

    scores: dict[str, NDArray[np.float64]]
    is_positional: NDArray[np.bool_]
    window: NDArray[np.int64]
    num_pos: NDArray[np.int64]
    starts: tuple[tuple[int, ...], ...]


def score_matrices(matrices: Tensor | NDArray[np.generic], *, is_causal: bool = False) -> MatrixScores:
    """The scores of attention matrices that need no tokens.

    Args:
        matrices: Weights after softmax, (n_matrices, n_tokens, n_tokens), rows are queries.
        is_causal: Whether each query could see only the keys up to itself, among which entries are then shuffled.
    """
    attention = checked_attention(matrices)
    if attention.ndim != 3:
        expected, fix = "an array of the shape (n_heads, n_tokens, n_tokens)", "combine layers and heads into one axis"
        raise UserError("attention", given=f"the shape {tuple(attention.shape)}", expected=expected, fix=fix)
    T = attention.shape[-1]
    blocks_HWP = distances_to_blocks(attention)
    # Blocks have at least two rows, where two fit: blocks of one are the identity.
    first_row = min(1, T - 1)
    best = blocks_HWP[:, first_row:, 1:].flatten(1).argmin(1)
    window, num_pos = best // T + first_row + 1, best % T + 1
    at_window = window.clamp_max(T - 1)
    distances: dict[str, Callable[[Tensor], Tensor]] = {
        "sigma_1": distances_to_diagonal,
        "sigma_2": lambda weights: _at(distances_to_bands(weights), at_window),
        "sigma_3": lambda weights: distances_to_blocks(weights)[..., first_row:, 1:].flatten(-2).amin(-1),
    }
    all_tokens = torch.ones(1, T, dtype=torch.bool)
    of_roles = role_scores(count_roles(attention.unsqueeze(1), Sentences(queries=all_tokens, keys=all_tokens)))
    scores = {name: of_roles[name] for name in _MEASURED}
    for name, distance in distances.items():
        test = permutation_test(attention, distance, is_causal=is_causal)
        scores |= {name: test.distance.numpy(), f"{name}_z": test.z.numpy()}
    nearest = [
        best_blocks(head.unsqueeze(0), w, p)
        for head, w, p in zip(attention, window.tolist(), num_pos.tolist(), strict=True)
    ]
    return MatrixScores(
        scores=scores,
        is_positional=scores["positional_share"] >= POSITIONAL_SHARE,
        window=window.numpy(),
        num_pos=num_pos.numpy(),
        starts=tuple(tuple(placement.starts[0].tolist()) for placement in nearest),
    )


def _at(bands: Tensor, window_H: Tensor) -> Tensor:
    return bands.gather(-1, window_H.unsqueeze(-1).expand(*bands.shape[:-1], 1)).squeeze(-1)
