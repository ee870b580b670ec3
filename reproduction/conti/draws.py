"""The sampling procedure of Conti 2024 (its notebook Attn_approx): random members of Sigma_1, Sigma_2, Sigma_3.

A draw is P + E with its rows normalized. E has T entries at distinct random places, U[0, 1) times `coeff_sp`, and a
zero diagonal. Two properties of the notebook are easy to miss: the noise of Sigma_3 is always multiplied by 0.5, and
`coeff_v`, the third coefficient of the grid, is never used, so each cell is drawn 11 times. We draw uniformly among all
placements of disjoint blocks; the notebook redraws until blocks are disjoint, which need not end.
Axes: D draw, T token.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsweep.workloads.engine.streams import Streams

COEFFICIENTS = tuple(round(0.1 * step, 1) for step in range(11))
N_DRAWS = 30
FIXED_COEFF_SP = 0.5
_KEEP = 0.6
_LOW, _HIGH = 0.7, 1.0


@dataclass(frozen=True, slots=True)
class Draws:
    """Random matrices of one structured family (Sigma_1, Sigma_2 or Sigma_3), drawn with one sparsity coefficient.

    Attributes:
        family: `sigma_1`, `sigma_2` or `sigma_3`.
        coefficient: `coeff_sp`, or for Sigma_3 `coeff_d`.
        matrices: The draws, (D, T, T); rows of zeros are NaN, as in the notebook.
    """

    family: str
    coefficient: float
    matrices: Tensor


def draw_families(T: int, window: int, num_pos: int, *, n_draws: int = N_DRAWS, seed: int = 0) -> Iterator[Draws]:
    """Yields all draws of the thesis's grid search for one head, by sparsity coefficient and family."""
    streams = Streams(torch.tensor([seed]))
    # The other two coefficients of the thesis's grid only multiply the number of draws.
    D = n_draws * len(COEFFICIENTS) ** 2
    for step, coefficient in enumerate(COEFFICIENTS):
        noise = _noise(streams, D, T, step) * coefficient
        values = streams.uniform("conti.diagonal", (D, T), step)[0]
        yield Draws("sigma_1", coefficient, _normalised(torch.diag_embed(1.0 - 0.1 * values) + noise))
        band = _band(streams, D, T, window, step)
        noise = _noise(streams, D, T, step + len(COEFFICIENTS)) * coefficient
        yield Draws("sigma_2", coefficient, _normalised(band + noise))
        blocks = coefficient * _blocks(streams, D, T, window, num_pos, step)
        noise = _noise(streams, D, T, step + 2 * len(COEFFICIENTS)) * FIXED_COEFF_SP
        yield Draws("sigma_3", coefficient, _normalised(blocks + noise))


def _noise(streams: Streams, D: int, T: int, step: int) -> Tensor:
    places = streams.uniform("conti.places", (D, T * T), step)[0].topk(T, dim=1).indices
    values = streams.uniform("conti.values", (D, T), step)[0]
    noise = torch.zeros(D, T * T, dtype=torch.float64).scatter(1, places, values).view(D, T, T)
    return noise * (1.0 - torch.eye(T, dtype=torch.float64))


def _band(streams: Streams, D: int, T: int, window: int, step: int) -> Tensor:
    position = torch.arange(T)
    inside = (position - position.unsqueeze(1)).abs() <= window
    kept = streams.uniform("conti.kept", (D, T, T), step)[0] < _KEEP
    return _between(streams.uniform("conti.band", (D, T, T), step)[0]) * (inside & kept)


def _blocks(streams: Streams, D: int, T: int, window: int, num_pos: int, step: int) -> Tensor:
    """Returns random members of Sigma_3, (D, T, T): diagonal matrices in which each block's rows hold their values in
    the block's first column.
    """
    values = _between(streams.uniform("conti.rows", (D, T), step)[0])
    # Disjoint blocks are placed by a bijection: shrinking each block to one row gives a shorter text, in which any
    # num_pos rows are a valid placement.
    n_places = T - num_pos * (window - 1)
    places = streams.uniform("conti.starts", (D, n_places), step)[0].topk(num_pos, dim=1).indices.sort(1).values
    starts = places + (window - 1) * torch.arange(num_pos)
    row = torch.arange(T)
    column = row.expand(D, T)
    for start in starts.unbind(1):
        within = (row >= start.unsqueeze(1)) & (row < start.unsqueeze(1) + window)
        column = torch.where(within, start.unsqueeze(1), column)
    return torch.zeros(D, T, T, dtype=torch.float64).scatter(2, column.unsqueeze(2), values.unsqueeze(2))


def _between(draw: Tensor) -> Tensor:
    return _LOW + (_HIGH - _LOW) * draw


def _normalised(matrices: Tensor) -> Tensor:
    return matrices / matrices.sum(-1, keepdim=True)
