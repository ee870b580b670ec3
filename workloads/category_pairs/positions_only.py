"""System P of Shin & Matzinger: attention depends on positions only, and the target is the previous category.

Axes of one training: M position, N category, K = M - 1 predicted position, B text, R row of k and q.
Source: Shin & Matzinger 2025, section 3.1 (softmax on the columns: 3.2); derivation: docs/notes/2026-11-21-theory.md.
"""

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.initialization import DrawnByEngine


class PositionsOnly(nn.Module, DrawnByEngine):
    """Predicts at positions i = 2..M the one-hot category X_{i-1} by v sum_j q_ji X_j.

    Attributes:
        q_MK: Attention logits from position j (row) to predicted position i (column); merged form only.
        k_RM, q_RK: Keys and queries, whose product k^t q are the logits; factored form only.
    """

    def __init__(self, n_categories: int, n_positions: int, *, softmax: bool, qk_rank: int | None = None) -> None:
        super().__init__()
        self._is_factored = qk_rank is not None
        if qk_rank is None:
            self.q_MK = nn.Parameter(torch.zeros(n_positions, n_positions - 1))
        else:
            self.k_RM = nn.Parameter(torch.zeros(qk_rank, n_positions))
            self.q_RK = nn.Parameter(torch.zeros(qk_rank, n_positions - 1))
        self.v_NN = nn.Parameter(torch.zeros(n_categories, n_categories))
        self._softmax = softmax
        self.n_positions = n_positions

    @property
    def n_categories(self) -> int:
        return self.v_NN.shape[0]

    def logits(self) -> Tensor:
        return self.k_RM.T @ self.q_RK if self._is_factored else self.q_MK

    def attention(self) -> Tensor:
        """(M, K), of each predicted position (column)."""
        return self.logits().softmax(dim=0) if self._softmax else self.logits()

    def population_loss(self) -> Tensor:
        """The expectation of the squared error over uniform texts, summed over predicted positions.

        In the letters of the derivation: L_i = 1 + (1/N)(-2 p_i a - 2 s_i b + n_i A + s_i^2 B).
        """
        q_MK = self.attention()
        p_K = q_MK.diagonal()
        s_K = q_MK.sum(0)
        n_K = q_MK.square().sum(0)
        a, b, A, B = components(self.v_NN)
        loss_K = 1 + (-2 * a * p_K - 2 * b * s_K + A * n_K + B * s_K.square()) / self.n_categories
        return loss_K.sum()

    def sampled_loss(self, text_BM: Tensor) -> Tensor:
        """The squared error, summed over predicted positions, averaged over texts."""
        # Texts come before the last axis, so that each training needs one matrix product for all texts.
        one_hot_MBN = nn.functional.one_hot(text_BM.T, self.n_categories).to(self.v_NN.dtype)
        context_KBN = torch.einsum("jk,jbn->kbn", self.attention(), one_hot_MBN)
        predicted_KBN = context_KBN @ self.v_NN.T
        return (one_hot_MBN[:-1] - predicted_KBN).square().sum() / text_BM.shape[0]

    def coordinates(self) -> dict[str, Tensor]:
        """Norms of logits and values, and the value matrix's coefficients `alpha` along I - P and `beta` along P. With
        opposite signs below the level 1/N, the training descends the valley at infinity (docs/outcomes.md)."""
        a, b, _, _ = components(self.v_NN)
        return {
            "alpha": a / (self.n_categories - 1),
            "beta": b,
            "q_norm": self.logits().square().sum().sqrt(),
            "v_norm": self.v_NN.square().sum().sqrt(),
        }

    def reference_levels(self) -> dict[str, Tensor]:
        """The losses per predicted position where the gradient can vanish, that of the valley's end, and `solved`."""
        N, M = self.n_categories, self.n_positions
        valley = (1 - 1 / N) / M
        levels = {"zero": 1.0, "mean": 1 - 1 / N, "solved": 0.01 if self._softmax else 0.05 * valley}
        if not self._softmax:
            levels |= {"centred_shift": 1 / N + 1 / M - 1 / (N * M), "valley": valley}
        return {name: self.v_NN.new_tensor(level) for name, level in levels.items()}


def components(v_NN: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """a = tr(v (I-P)), b = tr(v P), A = |v (I-P)|^2 and B = |v P|^2, with the matrix P that averages over categories:
    all that the gradient by attention depends on."""
    N = v_NN.shape[0]
    b = v_NN.sum() / N
    a = v_NN.diagonal().sum() - b
    B = v_NN.sum(1).square().sum() / N
    return a, b, v_NN.square().sum() - B, B
