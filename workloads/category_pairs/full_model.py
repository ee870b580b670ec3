"""The full models on category pairs: single-head attention, then LayerNorm and a feed-forward part (linear layer, ReLU,
linear layer).

Axes of one training: M position, N category, K = M - 1 predicted position, B text, S token row that logits see (or row
of k and q), V token row that values see and write (S and V are N, M or N + M, by the variant), O the same, H hidden.
Source: Shin & Matzinger 2025, section 4.1 (docs/notes/2026-11-21-theory.md, the full models).
"""

import math

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.layers import Linear
from attnsweep.workloads.category_pairs.attention import (
    attend_by_category,
    attend_by_position,
    attend_by_token,
    one_hot_texts,
)
from attnsweep.workloads.category_pairs.parameters import CategoryPairsParameters
from attnsweep.workloads.engine.constants import per_lane
from attnsweep.workloads.engine.initialization import DrawnByEngine
from attnsweep.workloads.engine.plain_forms import inverse_deviation


def unwanted_entries(flavour: str, n_categories: int, n_positions: int, hidden_width: int) -> dict[str, Tensor]:
    """Masks for k^t q, v, W_1 and w_2, 1 where the solution of the flavour has a zero; all 0 for `unconstrained`. The
    paper names the flavours of the combined model without their losses; ours add flavour_weight times the sum of
    squares of these entries. With categories (c) and positions (p) as rows and columns, the free entries are

      solution 1: k^t q on pp; v on the diagonal of cc; W_1 on c; all of w_2
      solution 2: k^t q on cc; v on pp; W_1 and w_2 on the units that each read one p
      solution 3: k^t q on pp; v on cc; W_1 and w_2 on the units that each read one c

    The feed-forward part must be restricted too: if it may mix rows, solutions 1 and 3 become the same.
    """
    names = ("unwanted_SS", "unwanted_VV", "unwanted_HV", "unwanted_H")
    n_rows = n_categories + n_positions
    shapes = ((n_rows, n_rows), (n_rows, n_rows), (hidden_width, n_rows), (hidden_width,))
    if flavour == "unconstrained":
        return {name: torch.zeros(shape) for name, shape in zip(names, shapes, strict=True)}
    logits, values, first, second = (torch.ones(shape) for shape in shapes)
    c, p = slice(0, n_categories), slice(n_categories, n_rows)
    asks, writes = (c, p) if flavour == "lean_2" else (p, c)
    logits[asks, asks] = 0.0
    values[writes, writes] = 0.0
    if flavour == "lean_1":
        values[writes, writes] = 1.0 - torch.eye(n_categories)
        first[:, writes] = 0.0
        second[:] = 0.0
    else:
        first[:, writes] -= torch.eye(hidden_width, n_rows)[:, writes]
        second[writes] = 0.0
    return dict(zip(names, (logits, values, first, second), strict=True))


class FullModel(nn.Module, DrawnByEngine):
    """Predicts Y_i = q*(X_{i-1}, X_i) at all positions but the first.

    Z = v X A [+ X], restricted to the rows that v writes, with A = scale X^t k^t q X or the softmax of its columns;
    answer = w_2 relu(W_1 LN(Z) + b_1) + b_2, where X are the one-hot tokens of a text.

    Attributes:
        k_SS, q_SS: Keys and queries of what logits see: positions (solutions 1, 3), categories (2), both (combined); or
            `kq_SS`, their product, in the merged form.
        v_VV: Values: categories for solutions 1 and 3, positions for 2, both for combined; rows are written.
        log_scale: Has an effect if `attention_scale` is `learned`.
        target_NN: The target function q*, drawn for each training.
        text_BM: The training's texts, if `expectation` is `fixed_sample`.
    """

    target_NN: Tensor
    text_BM: Tensor
    layer_norm_eps: Tensor
    base_scale: Tensor
    scale_is_learned: Tensor
    unwanted_SS: Tensor
    unwanted_VV: Tensor
    unwanted_HV: Tensor
    unwanted_H: Tensor
    flavour_weight: Tensor

    def __init__(self, parameters: CategoryPairsParameters) -> None:
        super().__init__()
        N, M = parameters.n_categories, parameters.n_positions
        S, V, hidden = {
            "solution_1": (M, N, N**2),
            "solution_2": (N, M, M),
            "solution_3": (M, N, N),
            "combined": (N + M, N + M, N + M),
        }[parameters.variant]
        hidden = parameters.hidden_width or hidden
        self._is_factored = parameters.is_factored
        if self._is_factored:
            self.k_SS = nn.Parameter(torch.zeros(parameters.qk_rank or S, S))
            self.q_SS = nn.Parameter(torch.zeros(parameters.qk_rank or S, S))
        else:
            self.kq_SS = nn.Parameter(torch.zeros(S, S))
        self.v_VV = nn.Parameter(torch.zeros(V, V))
        self.log_scale = nn.Parameter(torch.zeros(1))
        self.gain_V = nn.Parameter(torch.ones(V))
        self.bias_V = nn.Parameter(torch.zeros(V))
        self.first = Linear(V, hidden)
        self.second = Linear(hidden, 1)
        scale = {"one": 1.0, "log_n_inv_sqrt_d": math.log(M) * S**-0.5}.get(parameters.attention_scale, S**-0.5)
        for name, number in (
            ("layer_norm_eps", parameters.layer_norm_eps),
            ("flavour_weight", parameters.flavour_weight),
            ("base_scale", scale),
            ("scale_is_learned", float(parameters.attention_scale == "learned")),
        ):
            setattr(self, name, per_lane(number))
        self.register_buffer("target_NN", torch.zeros(N, N))
        self.has_sample = parameters.expectation == "fixed_sample"
        if self.has_sample:
            self.register_buffer("text_BM", torch.zeros(parameters.batch_size, M, dtype=torch.int64))
        if parameters.variant == "combined":
            for name, mask in unwanted_entries(parameters.flavour, N, M, hidden).items():
                self.register_buffer(name, mask)
        self.variant = parameters.variant
        self.n_categories, self.n_positions = N, M
        self._softmax = parameters.attention_activation == "softmax"
        self._skip = parameters.skip

    @property
    def scale(self) -> Tensor:
        """The factor of the logits: fixed, or learned as exp(log_scale) / sqrt(S)."""
        return self.base_scale * torch.exp(self.scale_is_learned * self.log_scale[0])

    def products(self) -> Tensor:
        """k^t q: rows are those of the key token, columns of the query token."""
        return self.k_SS.T @ self.q_SS if self._is_factored else self.kq_SS

    def logits(self) -> Tensor:
        return self.scale * self.products()

    def factors(self) -> tuple[Tensor, ...]:
        """The head's trained matrices: keys and queries, or their product; and values."""
        return (self.k_SS, self.q_SS, self.v_VV) if self._is_factored else (self.kq_SS, self.v_VV)

    def predict(self, text_BM: Tensor) -> Tensor:
        one_hot_BMN = one_hot_texts(text_BM, self.n_categories, self.v_VV.dtype)
        attend = _ATTEND[self.variant]
        # LayerNorm's centring is linear: values and skip connection are centred, not the output at every token.
        centred = attend(self.logits(), _centre(self.v_VV), self._residual(), one_hot_BMN, softmax=self._softmax)
        if attend is attend_by_position:
            return self._feed_forward_by_row(centred.flatten(1)).view(centred.shape[1:])
        return self._feed_forward(centred)[:, 1:]

    def predict_unattended(self, text_BM: Tensor) -> Tensor:
        """The answers, (B, K), with the attention output replaced by 0: computed once for each token."""
        N, M, residual_OV = self.n_categories, self.n_positions, self._residual()
        current_BK = text_BM[:, 1:]
        if self.variant == "combined":
            token_NMO = residual_OV[:, :N].T.unsqueeze(1) + residual_OV[:, N:].T
            return self._feed_forward(token_NMO)[current_BK, torch.arange(1, M, device=text_BM.device)]
        answer_V = self._feed_forward(residual_OV.T)
        return answer_V[1:].expand(current_BK.shape) if self.variant == "solution_2" else answer_V[current_BK]

    def _residual(self) -> Tensor:
        residual_VV = torch.eye(*self.v_VV.shape, dtype=self.v_VV.dtype, device=self.v_VV.device)
        return _centre(residual_VV if self._skip else torch.zeros_like(residual_VV))

    def wanted(self, text_BM: Tensor) -> Tensor:
        return self.target_NN[text_BM[:, :-1], text_BM[:, 1:]]

    def forward(self, text_BM: Tensor) -> tuple[Tensor, Tensor]:
        """The mean squared error over texts and predicted positions, and the answers, (B, K)."""
        answer_BK = self.predict(text_BM)
        return (self.wanted(text_BM) - answer_BK).square().mean(), answer_BK

    def leaning_loss(self) -> Tensor:
        """The penalty that pulls a combined model to its `flavour`; 0 for others."""
        if self.variant != "combined":
            return self.v_VV.new_zeros(())
        pairs = (
            (self.unwanted_SS, self.products()),
            (self.unwanted_VV, self.v_VV),
            (self.unwanted_HV, self.first.weight),
            (self.unwanted_H, self.second.weight[0]),
        )
        return self.flavour_weight * torch.stack([(mask * matrix.square()).sum() for mask, matrix in pairs]).sum()

    def _feed_forward(self, centred: Tensor) -> Tensor:
        """LayerNorm and the feed-forward part, on a last axis of mean 0."""
        first_HV, bias_H = self._first_layer()
        inverse = inverse_deviation(centred, self.layer_norm_eps)
        hidden = torch.relu((centred @ first_HV.T) * inverse + bias_H)
        return hidden @ self.second.weight[0] + self.second.bias

    def _feed_forward_by_row(self, centred: Tensor) -> Tensor:
        """`_feed_forward` along the first axis, (V, n_tokens)."""
        first_HV, bias_H = self._first_layer()
        inverse = inverse_deviation(centred, self.layer_norm_eps, dim=0)
        hidden = torch.relu((first_HV @ centred) * inverse + bias_H.unsqueeze(1))
        return self.second.weight[0] @ hidden + self.second.bias

    def _first_layer(self) -> tuple[Tensor, Tensor]:
        """Weight and bias, with LayerNorm's gain and bias merged into them."""
        return self.first.weight * self.gain_V, self.first.bias + self.first.weight @ self.bias_V


_ATTEND = {
    "solution_1": attend_by_position,
    "solution_2": attend_by_category,
    "solution_3": attend_by_position,
    "combined": attend_by_token,
}


def _centre(matrix_OS: Tensor) -> Tensor:
    return matrix_OS - matrix_OS.mean(0)
