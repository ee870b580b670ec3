"""System C of Shin & Matzinger: attention depends on categories only and values on positions only.

Axes of one training: M position, N category, K = M - 1 predicted position, B text, R row of k and q. Source: Shin &
Matzinger 2025, section 3.3; derivation: docs/notes/2026-11-21-theory.md, system C.
"""

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
        """(N, N), of a query (column) for a key (row)."""
        return self.k_RN.T @ self.q_RN if self._is_factored else self.q_NN

    def population_loss(self) -> Tensor:
        """The expectation of sum_i (Y_i - Yhat_i)^2 over uniform texts, without softmax.

        In the letters of docs/notes/2026-11-21-theory.md, system C: L_i = V* - 2 p_i C + n_i V + E_t e_i(t)^2.
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
        """The squared error, summed over predicted positions, averaged over texts."""
        # Texts come before the last axis, so that each training needs one matrix product for all texts.
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
        """Norms of logits and values, and `target_match`: the correlation of logits and target table without their
        column means."""
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
        """The losses per predicted position of the output 0 and of the mean target given the current category, on these
        texts or expected over all; and `solved`, 1% of the loss of the best constant."""
        mean_N, target_centred_NN = _centre(self.target_NN)
        errors = {"zero": self.target_NN, "marginal": target_centred_NN, "solved": self.target_NN - mean_N.mean()}
        pairs = ... if text_BM is None else (text_BM[:, :-1], text_BM[:, 1:])
        losses = {name: error_NN.square()[pairs].mean() for name, error_NN in errors.items()}
        return losses | {"solved": 1e-2 * losses["solved"]}


def _centre(table_NN: Tensor) -> tuple[Tensor, Tensor]:
    mean_N = table_NN.mean(0)
    return mean_N, table_NN - mean_N
