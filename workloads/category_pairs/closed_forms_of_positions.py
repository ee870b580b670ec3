"""System P (`positions_only`): the gradients of the population loss by formula.

Equations 3.7-3.9 and 3.18 of Shin & Matzinger 2025 are -1/2 times these gradients (docs/theory.md, system P). Axes: M
position, N category, K = M - 1 predicted position.
"""

import torch
from torch import Tensor

from attnsweep.workloads.category_pairs.positions_only import PositionsOnly

SOURCE = "Shin & Matzinger 2025, equations 3.7-3.9 and 3.18, times -2"


def by_attention(system: PositionsOnly) -> Tensor:
    """Returns dL/dq_ji = 2/N (-a [j = i-1] - b + A q_ji + B s_i), (M, K); `components` computes a, b, A and B."""
    a, b, A, B = components(system.v_NN)
    quadratic_MK = A * system.q_MK + B * system.q_MK.sum(0)
    return (2 / system.n_categories) * (quadratic_MK - a * shift(system.n_positions) - b)


def by_values(system: PositionsOnly) -> Tensor:
    """Returns the gradient dL/dv = 2/N (-(Sum p)(I-P) - (Sum s) P + (Sum n) v(I-P) + (Sum s^2) vP), (N, N)."""
    N, q_MK, v_NN = system.n_categories, system.q_MK, system.v_NN
    mean_NN = mean(N)
    rest_NN = torch.eye(N, dtype=torch.float64) - mean_NN
    p, s_K = q_MK.diagonal().sum(), q_MK.sum(0)
    linear_NN = p * rest_NN + s_K.sum() * mean_NN
    return (2 / N) * (-linear_NN + q_MK.square().sum() * v_NN @ rest_NN + s_K.square().sum() * v_NN @ mean_NN)


def components(v_NN: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns a = tr(v (I-P)), b = tr(v P), A = |v (I-P)|^2 and B = |v P|^2, where P averages over categories."""
    N = v_NN.shape[0]
    b = v_NN.sum() / N
    B = v_NN.sum(1).square().sum() / N
    return v_NN.trace() - b, b, v_NN.square().sum() - B, B


def shift(M: int) -> Tensor:
    """Returns the shift matrix U (M, K): 1 where row j is one position before the predicted position i, else 0."""
    return torch.eye(M, M - 1, dtype=torch.float64)


def mean(N: int) -> Tensor:
    """Returns the matrix P (N, N) that averages over categories: all entries are 1/N."""
    return torch.full((N, N), 1 / N, dtype=torch.float64)
