"""System C: attention sees categories only; the diagonal of the value-weighted attention is read off.

Axes of one training: M position, N category, K = M - 1 predicted positions, B text in the batch.
Source: Shin & Matzinger 2025, section 3.3; SEEDS A.2. Categories are uniform here.
"""

import torch
from torch import Tensor, nn


class CategoriesOnly(nn.Module):
    """The predictor sum_j v_ij q(X_j, X_i) of Y_i = q*(X_{i-1}, X_i), for i = 2..M.

    Attributes:
        q_NN: Attention logits from category r (row) to category t (column).
        v_MM: How position i (row) weighs position j (column); the first row is never used.
        target_NN: q*, drawn for each training.
    """

    target_NN: Tensor

    def __init__(self, n_categories: int, n_positions: int, *, softmax: bool) -> None:
        super().__init__()
        self.q_NN = nn.Parameter(torch.zeros(n_categories, n_categories))
        self.v_MM = nn.Parameter(torch.zeros(n_positions, n_positions))
        self.register_buffer("target_NN", torch.zeros(n_categories, n_categories))
        self._softmax = softmax

    @property
    def n_positions(self) -> int:
        """M."""
        return self.v_MM.shape[0]

    def population_loss(self) -> Tensor:
        """E sum_i (Y_i - Yhat_i)^2 under uniform categories, exactly, without softmax.

        L_i = V* - 2 p_i C + n_i V + E_t e_i(t)^2: SEEDS A.2.
        """
        v_KM = self.v_MM[1:]
        p_K = v_KM.diagonal()
        d_K = self.v_MM.diagonal()[1:]
        s_K = v_KM.sum(1) - d_K
        n_K = v_KM.square().sum(1) - d_K.square()
        mean_N, centred_NN = _centre(self.q_NN)
        target_mean_N, target_centred_NN = _centre(self.target_NN)
        variance = centred_NN.square().mean()
        covariance = (centred_NN * target_centred_NN).mean()
        target_variance = target_centred_NN.square().mean()
        error_KN = target_mean_N - torch.outer(s_K, mean_N) - torch.outer(d_K, self.q_NN.diagonal())
        loss_K = target_variance - 2 * p_K * covariance + n_K * variance + error_KN.square().mean(1)
        return loss_K.sum()

    def sampled_loss(self, text_BM: Tensor) -> Tensor:
        """The mean over a batch of texts (B, M) of sum_i (Y_i - Yhat_i)^2."""
        # Texts inside, positions outside: one product of matrices a training, not one a text.
        one_hot_MBN = nn.functional.one_hot(text_BM.T, self.q_NN.shape[0]).to(self.q_NN.dtype)
        read_KBN = one_hot_MBN[1:] @ self.q_NN.T
        v_KM = self.v_MM[1:]
        if self._softmax:
            attention_KBM = torch.einsum("kbn,mbn->kbm", read_KBN, one_hot_MBN).softmax(dim=2)
            predicted_KB = (attention_KBM * v_KM[:, None]).sum(2)
        else:
            predicted_KB = (read_KBN * torch.einsum("km,mbn->kbn", v_KM, one_hot_MBN)).sum(2)
        wanted_KB = self.target_NN[text_BM[:, :-1], text_BM[:, 1:]].T
        return (wanted_KB - predicted_KB).square().sum() / text_BM.shape[0]

    def coordinates(self) -> dict[str, Tensor]:
        """`target_match`: correlation of the centred q with the centred q*; norms of q and v."""
        _, centred_NN = _centre(self.q_NN)
        _, target_NN = _centre(self.target_NN)
        overlap = (centred_NN * target_NN).sum()
        return {
            "target_match": overlap / (centred_NN.square().sum() * target_NN.square().sum()).sqrt(),
            "q_norm": self.q_NN.square().sum().sqrt(),
            "v_norm": self.v_MM[1:].square().sum().sqrt(),
        }

    def reference_levels(self) -> dict[str, Tensor]:
        """Losses per predicted position of the predictors known in closed form, and the bar for `solved`."""
        _, target_centred_NN = _centre(self.target_NN)
        return {
            "zero": self.target_NN.square().mean(),
            "marginal": target_centred_NN.square().mean(),
            "solved": 1e-2 * (self.target_NN - self.target_NN.mean()).square().mean(),
        }


def _centre(table_NN: Tensor) -> tuple[Tensor, Tensor]:
    """Column means m(t) = E q(X, t) and the table less them."""
    mean_N = table_NN.mean(0)
    return mean_N, table_NN - mean_N
