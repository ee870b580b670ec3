"""The hand-programmed solutions of category pairs, as printed and as corrected, as weights for any N and M.

With tokens X (N + M rows, categories first) and Z = X + v X X^t k^t q X, the answers are
Y = second relu(first Z + first_bias) + second_bias. There is no LayerNorm.

Solution 1: k = [0 | I], q = [0 | 2U], v = diag(I, 0): Z's categories are 2 e_a + e_b with a = X_{i-1}, b = X_i, and
    one hidden unit per pair recognizes it. As printed, unit (a, a) = 3 e_a answers 6 to 2 e_a + e_b where unit (a, b)
    answers 5: both pass the bias -4. Corrected: the units (a, a) have bias -8, and their weight makes up for the
    answers of the units (a, c) to 3 e_a: second(a, a) = q*(a, a) - 2 sum_{c != a} q*(a, c).
Solution 2: k = [I | 0], q = [q* | 0], v = diag(0, U^t)/c; solution 3: k = [0 | I], q = [0 | U], v = diag(q*^t, 0)/c.
    relu(Z - 1) keeps the one entry of Z, on position i (2) or category X_i (3), that X_i itself raises; as printed,
    this gives max(q*, 0). Corrected for both signs: with b0 = max |q*|, c = 2 b0 + 1, the bias is -1 + b0/c, and b0 is
    subtracted from the answer.
    Both compute the same: diag(U^t X_C^t A X_C) = diag(X_C^t A^t X_C U), X_C the categories' rows, A = q*.

Axes: N category, M position, S = N + M token row, H hidden, B text, K = M - 1 predicted position, X = M or N row of the
factors k and q.
Source: Shin & Matzinger 2025, sections 2.1-2.3; corrections: docs/theory.md, hand-programmed solutions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnsweep.workloads.category_pairs.attention import attend_by_token, one_hot_texts


@dataclass(frozen=True, kw_only=True, slots=True)
class Handmade:
    """The weights of a model that answers q*(X_{i-1}, X_i) at i = 2..M, and 0 at i = 1, without a previous category."""

    k_XS: Tensor
    q_XS: Tensor
    v_SS: Tensor
    first_HS: Tensor
    first_bias_H: Tensor
    second_H: Tensor
    second_bias: float

    def answers(self, text_BM: Tensor) -> Tensor:
        """Returns the model's answers at all positions, the first included, (B, M)."""
        n_positions = text_BM.shape[1]
        one_hot_BMN = one_hot_texts(text_BM, self.v_SS.shape[0] - n_positions, self.v_SS.dtype)
        residual_SS = torch.eye(self.v_SS.shape[0], dtype=self.v_SS.dtype)
        token_BMS = attend_by_token(self.k_XS.T @ self.q_XS, self.v_SS, residual_SS, one_hot_BMN, softmax=False)
        hidden_BMH = torch.relu(token_BMS @ self.first_HS.T + self.first_bias_H)
        return hidden_BMH @ self.second_H + self.second_bias


def solution_1(target_NN: Tensor, n_positions: int, *, printed: bool = False) -> Handmade:
    """Returns the weights of solution 1: attention copies the previous category, and the feed-forward part holds the
    table q*.
    """
    N, M = target_NN.shape[0], n_positions
    categories = torch.eye(N).to(target_NN)
    pairs_NNN = 2 * categories[:, None] + categories[None, :]
    bias_NN = torch.full_like(target_NN, -4.0)
    second_NN = target_NN
    if not printed:
        bias_NN = bias_NN - 4.0 * categories
        others_N = target_NN.sum(1) - target_NN.diagonal()
        second_NN = target_NN - torch.diag(2.0 * others_N)
    return Handmade(
        k_XS=_beside(categories.new_zeros(M, N), torch.eye(M).to(target_NN)),
        q_XS=_beside(categories.new_zeros(M, N), 2.0 * shift(M).to(target_NN)),
        v_SS=_diagonal(categories, target_NN.new_zeros(M, M)),
        first_HS=_beside(pairs_NNN.flatten(0, 1), target_NN.new_zeros(N**2, M)),
        first_bias_H=bias_NN.flatten(),
        second_H=second_NN.flatten(),
        second_bias=0.0,
    )


def solution_2(target_NN: Tensor, n_positions: int, *, printed: bool = False) -> Handmade:
    """Returns the weights of solution 2: attention adds up the answers q*(X_j, X_i) for all positions j.

    The values route j = i - 1 to position i, where the feed-forward part reads the answer.
    """
    N, M = target_NN.shape[0], n_positions
    c, lift = _range(target_NN, printed)
    return Handmade(
        k_XS=_beside(torch.eye(N).to(target_NN), target_NN.new_zeros(N, M)),
        q_XS=_beside(target_NN, target_NN.new_zeros(N, M)),
        v_SS=_diagonal(target_NN.new_zeros(N, N), shift(M).T.to(target_NN) / c),
        first_HS=_beside(target_NN.new_zeros(M, N), torch.eye(M).to(target_NN)),
        first_bias_H=target_NN.new_full((M,), -1.0 + lift / c),
        second_H=target_NN.new_full((M,), c),
        second_bias=-lift,
    )


def solution_3(target_NN: Tensor, n_positions: int, *, printed: bool = False) -> Handmade:
    """Returns the weights of solution 3: attention selects the previous position.

    The values answer q*(X_{i-1}, b) for all b, of which the feed-forward part reads category b = X_i.
    """
    N, M = target_NN.shape[0], n_positions
    c, lift = _range(target_NN, printed)
    return Handmade(
        k_XS=_beside(target_NN.new_zeros(M, N), torch.eye(M).to(target_NN)),
        q_XS=_beside(target_NN.new_zeros(M, N), shift(M).to(target_NN)),
        v_SS=_diagonal(target_NN.T / c, target_NN.new_zeros(M, M)),
        first_HS=_beside(torch.eye(N).to(target_NN), target_NN.new_zeros(N, M)),
        first_bias_H=target_NN.new_full((N,), -1.0 + lift / c),
        second_H=target_NN.new_full((N,), c),
        second_bias=-lift,
    )


SOLUTIONS = {"solution_1": solution_1, "solution_2": solution_2, "solution_3": solution_3}


def shift(n_positions: int) -> Tensor:
    """Returns the shift matrix U (M, M): 1 where the row is the column's position minus one, else 0."""
    return torch.diag(torch.ones(n_positions - 1, dtype=torch.float64), diagonal=1)


def _range(target_NN: Tensor, printed: bool) -> tuple[float, float]:
    """Returns the scale c and the bias b0, which is added before the ReLU, so that it cuts no answer, and subtracted
    afterwards.
    """
    largest = target_NN.abs().max().item()
    return (largest + 1.0, 0.0) if printed else (2.0 * largest + 1.0, largest)


def _diagonal(on_categories_NN: Tensor, on_positions_MM: Tensor) -> Tensor:
    N, M = on_categories_NN.shape[0], on_positions_MM.shape[0]
    return pad(on_categories_NN, (0, M, 0, M)) + pad(on_positions_MM, (N, 0, N, 0))


def _beside(left: Tensor, right: Tensor) -> Tensor:
    return torch.cat([left, right], dim=1)
