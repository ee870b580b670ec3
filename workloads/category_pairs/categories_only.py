"""System C of Shin & Matzinger: attention depends on categories only and values on positions only; with formulas for
its gradients.

Axes of one training: M position, N category, K = M - 1 predicted positions, B text in the batch. Source: Shin &
Matzinger 2025, section 3.3; derivation: docs/theory.md, system C. Categories are uniform in the model; the formulas of
the gradients, which the paper does not print, hold for any distribution of categories.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.initialization import DrawnByEngine


class CategoriesOnly(nn.Module, DrawnByEngine):
    """Predicts Y_i = q*(X_{i-1}, X_i) at positions i = 2..M by the sum over positions j of v_ij q(X_j, X_i), where X_i
    is the category at position i.

    Attributes:
        q_NN: Attention logits from category r (row) to category t (column); merged form only.
        k_RN, q_RN: Keys and queries, whose product k^t q are the logits; factored form only.
        v_KM: The weight of position j (column) in the prediction at position i (row).
        target_NN: The target function q*, drawn for each training.
    """

    target_NN: Tensor

    def __init__(self, n_categories: int, n_positions: int, *, softmax: bool, qk_rank: int | None = None) -> None:
        super().__init__()
        self._is_factored = qk_rank is not None
        if qk_rank is None:
            self.q_NN = nn.Parameter(torch.zeros(n_categories, n_categories))
        else:
            self.k_RN = nn.Parameter(torch.zeros(qk_rank, n_categories))
            self.q_RN = nn.Parameter(torch.zeros(qk_rank, n_categories))
        self.v_KM = nn.Parameter(torch.zeros(n_positions - 1, n_positions))
        self.register_buffer("target_NN", torch.zeros(n_categories, n_categories))
        self._softmax = softmax

    @property
    def n_positions(self) -> int:
        return self.v_KM.shape[1]

    def logits(self) -> Tensor:
        """The attention logits (n_categories, n_categories) of a query (column) for a key (row)."""
        return self.k_RN.T @ self.q_RN if self._is_factored else self.q_NN

    def population_loss(self) -> Tensor:
        """The exact expectation of sum_i (Y_i - Yhat_i)^2 over uniform texts, without softmax.

        In the letters of docs/theory.md, system C: L_i = V* - 2 p_i C + n_i V + E_t e_i(t)^2.
        """
        p_K = self.v_KM.diagonal()
        d_K = self.v_KM.diagonal(offset=1)
        s_K = self.v_KM.sum(1) - d_K
        n_K = self.v_KM.square().sum(1) - d_K.square()
        q_NN = self.logits()
        mean_N, centred_NN = _centre(q_NN)
        target_mean_N, target_centred_NN = _centre(self.target_NN)
        variance = centred_NN.square().mean()
        covariance = (centred_NN * target_centred_NN).mean()
        target_variance = target_centred_NN.square().mean()
        error_KN = target_mean_N - torch.outer(s_K, mean_N) - torch.outer(d_K, q_NN.diagonal())
        loss_K = target_variance - 2 * p_K * covariance + n_K * variance + error_KN.square().mean(1)
        return loss_K.sum()

    def sampled_loss(self, text_BM: Tensor) -> Tensor:
        """The squared error on texts (n_texts, n_positions), summed over predicted positions, averaged over texts."""
        # Texts are the last axis, so that each training needs one matrix product for all texts instead of one per text.
        q_NN = self.logits()
        one_hot_MBN = nn.functional.one_hot(text_BM.T, q_NN.shape[0]).to(q_NN.dtype)
        read_KBN = one_hot_MBN[1:] @ q_NN.T
        if self._softmax:
            attention_KBM = torch.einsum("kbn,mbn->kbm", read_KBN, one_hot_MBN).softmax(dim=2)
            predicted_KB = (attention_KBM * self.v_KM[:, None]).sum(2)
        else:
            predicted_KB = (read_KBN * torch.einsum("km,mbn->kbn", self.v_KM, one_hot_MBN)).sum(2)
        wanted_KB = self.target_NN[text_BM[:, :-1], text_BM[:, 1:]].T
        return (wanted_KB - predicted_KB).square().sum() / text_BM.shape[0]

    def coordinates(self) -> dict[str, Tensor]:
        """The norms of logits and values, and `target_match`, the correlation of the logits with the target table after
        column means are subtracted."""
        q_NN = self.logits()
        _, centred_NN = _centre(q_NN)
        _, target_centred_NN = _centre(self.target_NN)
        overlap = (centred_NN * target_centred_NN).sum()
        return {
            "target_match": overlap / (centred_NN.square().sum() * target_centred_NN.square().sum()).sqrt(),
            "q_norm": q_NN.square().sum().sqrt(),
            "v_norm": self.v_KM.square().sum().sqrt(),
        }

    def reference_levels(self, text_BM: Tensor | None = None) -> dict[str, Tensor]:
        """The losses per predicted position of the output 0 and of the mean target given the current category, on the
        given texts or expected over all; and `solved`, 1% of the loss of the best constant."""
        mean_N, target_centred_NN = _centre(self.target_NN)
        errors = {"zero": self.target_NN, "marginal": target_centred_NN, "solved": self.target_NN - mean_N.mean()}
        pairs = ... if text_BM is None else (text_BM[:, :-1], text_BM[:, 1:])
        losses = {name: error_NN.square()[pairs].mean() for name, error_NN in errors.items()}
        return losses | {"solved": 1e-2 * losses["solved"]}


def _centre(table_NN: Tensor) -> tuple[Tensor, Tensor]:
    mean_N = table_NN.mean(0)
    return mean_N, table_NN - mean_N


SOURCE = "docs/theory.md, system C"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """The weights and the problem of system C: logits, values, target, probabilities of the categories."""

    q_NN: Tensor
    v_KM: Tensor
    target_NN: Tensor
    law_N: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """Intermediate results of system C's gradients, named as in docs/theory.md."""

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
    """Computes the sums and averages of which the gradients consist if attention depends on categories only."""
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
    """Half the loss's gradient by the values, (n_predicted, n_positions).

    In the letters of docs/theory.md, system C: dL/dv_ij = 2V v_ij - 2C [j=i-1] - 2E[e_i m] for j != i; dL/dv_ii =
    -2E[e_i D].
    """
    terms = moments(task)
    n_predicted, M = task.v_KM.shape
    off_own = terms.V * task.v_KM - terms.C * torch.eye(n_predicted, M, dtype=torch.float64)
    off_own = off_own - (terms.e_KN @ (task.law_N * terms.mean_N)).unsqueeze(1)
    own_K = -terms.e_KN @ (task.law_N * task.q_NN.diagonal())
    is_own = torch.eye(M, dtype=torch.float64)[1:]
    return off_own * (1 - is_own) + is_own * own_K.unsqueeze(1)


def half_by_attention(task: Task) -> Tensor:
    """Half the loss's gradient by the logits, (n_categories, n_categories).

    In the letters of docs/theory.md, system C: dL/dq(r,t) = 2 pi_r pi_t (-(Sum p) qt* + (Sum n) qt) - 2 pi_t Sum
    e_i(t)(sg_i pi_r + d_i [r=t])
    """
    terms, law = moments(task), task.law_N
    pairs_NN = torch.outer(law, law)
    read = torch.outer(law, terms.sg_K @ terms.e_KN) + torch.diag(terms.d_K @ terms.e_KN)
    return pairs_NN * (terms.n_K.sum() * terms.centred_NN - terms.p_K.sum() * terms.target_centred_NN) - law * read
