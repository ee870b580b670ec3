"""System C (`categories_only`): the gradients of the population loss by formula, for any distribution of categories.

The formulas are our own: section 3.3 of Shin & Matzinger 2025 prints none (docs/theory.md, system C). Axes: M position,
N category, K = M - 1 predicted position.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

SOURCE = "docs/theory.md, system C"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One problem of system C: the parameters q and v, the target q*, and the probabilities (N,) of the categories."""

    q_NN: Tensor
    v_KM: Tensor
    target_NN: Tensor
    law_N: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """The quantities from which docs/theory.md, system C, builds the gradients, named by the same letters."""

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
    """Returns the moments of q, v and q* for the given category probabilities."""
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
    """Returns half of dL/dv, (K, M): dL/dv_ij = 2V v_ij - 2C [j=i-1] - 2E[e_i m] for j != i; dL/dv_ii = -2E[e_i D]."""
    terms = moments(task)
    n_predicted, M = task.v_KM.shape
    off_own = terms.V * task.v_KM - terms.C * torch.eye(n_predicted, M, dtype=torch.float64)
    off_own = off_own - (terms.e_KN @ (task.law_N * terms.mean_N)).unsqueeze(1)
    own_K = -terms.e_KN @ (task.law_N * task.q_NN.diagonal())
    is_own = torch.eye(M, dtype=torch.float64)[1:]
    return off_own * (1 - is_own) + is_own * own_K.unsqueeze(1)


def half_by_attention(task: Task) -> Tensor:
    """Returns half of the gradient with respect to q, dL/dq(r,t), (N, N).

    dL/dq(r,t) = 2 pi_r pi_t (-(Sum p) qt* + (Sum n) qt) - 2 pi_t Sum e_i(t)(sg_i pi_r + d_i [r=t])
    """
    terms, law = moments(task), task.law_N
    pairs_NN = torch.outer(law, law)
    read = torch.outer(law, terms.sg_K @ terms.e_KN) + torch.diag(terms.d_K @ terms.e_KN)
    return pairs_NN * (terms.n_K.sum() * terms.centred_NN - terms.p_K.sum() * terms.target_centred_NN) - law * read
