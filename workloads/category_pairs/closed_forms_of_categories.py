"""System C: the gradients of the population loss by formula, for any law of categories.

Ours; Shin & Matzinger 2025, section 3.3, prints none of them (docs/theory.md, system C). Axes: M position, N category,
K = M - 1 predicted position.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

SOURCE = "docs/theory.md, system C"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Parameters, a target, and the law of categories (N,)."""

    q_NN: Tensor
    v_KM: Tensor
    target_NN: Tensor
    law_N: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """The letters of docs/theory.md, system C."""

    p_K: Tensor
    d_K: Tensor
    sg_K: Tensor
    n_K: Tensor
    mean_N: Tensor
    centred_NN: Tensor
    target_centred_NN: Tensor
    V: Tensor
    C: Tensor
    target_V: Tensor
    e_KN: Tensor


def moments(task: Task) -> Moments:
    """Of a task."""
    law, v_KM = task.law_N, task.v_KM
    pairs_NN = torch.outer(law, law)
    d_K = v_KM.diagonal(offset=1)
    sg_K = v_KM.sum(1) - d_K
    mean_N, target_mean_N = law @ task.q_NN, law @ task.target_NN
    centred_NN, target_centred_NN = task.q_NN - mean_N, task.target_NN - target_mean_N
    return Moments(
        p_K=v_KM.diagonal(),
        d_K=d_K,
        sg_K=sg_K,
        n_K=v_KM.square().sum(1) - d_K.square(),
        mean_N=mean_N,
        centred_NN=centred_NN,
        target_centred_NN=target_centred_NN,
        V=(pairs_NN * centred_NN.square()).sum(),
        C=(pairs_NN * centred_NN * target_centred_NN).sum(),
        target_V=(pairs_NN * target_centred_NN.square()).sum(),
        e_KN=target_mean_N - torch.outer(sg_K, mean_N) - torch.outer(d_K, task.q_NN.diagonal()),
    )


def half_by_values(task: Task) -> Tensor:
    """(K, M) half of dL/dv_ij = 2V v_ij - 2C [j=i-1] - 2E[e_i m], j != i; dL/dv_ii = -2E[e_i D]."""
    of = moments(task)
    n_predicted, M = task.v_KM.shape
    off_own = of.V * task.v_KM - of.C * torch.eye(n_predicted, M, dtype=torch.float64)
    off_own = off_own - (of.e_KN @ (task.law_N * of.mean_N)).unsqueeze(1)
    own_K = -of.e_KN @ (task.law_N * task.q_NN.diagonal())
    is_own = torch.eye(M, dtype=torch.float64)[1:]
    return off_own * (1 - is_own) + is_own * own_K.unsqueeze(1)


def half_by_attention(task: Task) -> Tensor:
    """(N, N) half of dL/dq(r,t).

    dL/dq(r,t) = 2 pi_r pi_t (-(Sum p) qt* + (Sum n) qt) - 2 pi_t Sum e_i(t)(sg_i pi_r + d_i [r=t])
    """
    of, law = moments(task), task.law_N
    pairs_NN = torch.outer(law, law)
    read = torch.outer(law, of.sg_K @ of.e_KN) + torch.diag(of.d_K @ of.e_KN)
    return pairs_NN * (of.n_K.sum() * of.centred_NN - of.p_K.sum() * of.target_centred_NN) - law * read
