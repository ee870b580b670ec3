"""Multi-head attention for one training. It also returns its attention weights, which the scores of heads need.

Axes of one training: B sequence, T token, Q query token, K key token, D model, H head, C channel of a query and a key,
E = D / H channel of a value.
"""

import torch
from torch import Tensor

from attnsweep.workloads.attention.intervened import HoldableHeads, clamped
from attnsweep.workloads.attention.layers import Linear, MakesLinear
from attnsweep.workloads.attention.logit_scale import LogitScale, logit_scale
from attnsweep.workloads.attention.sight import Sight
from attnsweep.workloads.errors import SpecError

QK_FORMS = ("factored", "merged")


class Attention(HoldableHeads):
    """Multi-head attention: softmax(s Q K^t + mask) V per head, heads concatenated, then a linear layer.

    With `factored`, Q = x W_q^t + b_q and K = x W_k^t + b_k have C = `qk_rank` channels per head. With `merged`, the
    product of the two matrices is one parameter: Q = x W^t + c has C = D channels per head, and the keys are the tokens
    themselves. Both forms express the same functions if `qk_rank` >= D (a key bias adds the same number to all logits
    of a query, which softmax ignores), but gradient descent takes different paths in them.

    Args:
        d_model: D.
        n_heads: H, a divisor of D.
        qk: The form of the logits, one of `QK_FORMS`.
        qk_rank: C, for `factored`; `None` = D / H.
        attention_scale: The name of the factor s: see `logit_scale`. Its d is C with `factored`, and D / H with
            `merged`, so that the default scale does not depend on the form.
        linear: Makes the linear layers.

    Attributes:
        query, key, value, out: The linear layers; `key` is `None` with `merged`.
        scale, has_log_n: The factor s as buffers, so that trainings of one program may differ in it.
        clamp_H, logit_factor_H: The buffers of interventions: see `HoldableHeads`.

    Raises:
        SpecError: If D is not a multiple of H, or `qk_rank` is given with `merged`.

    Source: Vaswani et al. 2017, section 3.2. The mask is minus infinity before the softmax.
    """

    scale: Tensor
    has_log_n: Tensor

    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        qk: str = "factored",
        qk_rank: int | None = None,
        attention_scale: str = "inv_sqrt_d",
        linear: MakesLinear = Linear,
    ) -> None:
        super().__init__(n_heads)
        check_heads(d_model, n_heads, qk, qk_rank)
        C = d_model if qk == "merged" else qk_rank or d_model // n_heads
        self.query = linear(d_model, n_heads * C)
        self.key = linear(d_model, n_heads * C) if qk == "factored" else None
        self.value = linear(d_model, d_model)
        self.out = linear(d_model, d_model)
        factor = logit_scale(attention_scale, d_model // n_heads if qk == "merged" else C)
        self.register_buffer("scale", factor.scale)
        self.register_buffer("has_log_n", factor.has_log_n)

    def forward(self, x_BTD: Tensor, sight: Sight) -> tuple[Tensor, Tensor]:
        """Computes self-attention. Returns the output (B, T, D) and the attention weights (B, H, T, T)."""
        return self.attend(x_BTD, self.keys(x_BTD), self.values(x_BTD), sight)

    def attend(self, asking_BQD: Tensor, key_BHKC: Tensor, value_BHKE: Tensor, sight: Sight) -> tuple[Tensor, Tensor]:
        """Computes attention between two sets of tokens.

        Args:
            asking_BQD: The tokens from which queries are computed.
            key_BHKC, value_BHKE: The results of `keys` and `values` on the tokens that are attended to.
            sight: The attention mask: which keys each query sees.

        Returns:
            The output (B, Q, D) at the tokens `asking_BQD`, and the attention weights (B, H, Q, K).
        """
        query_BHQC = self.queries(asking_BQD, sight)
        bias_B1QK = sight.bias_BQK.unsqueeze(1)
        mixed_BQD, weight_BHQK = attended(query_BHQC, key_BHKC, value_BHKE, bias_B1QK, self.clamp_H)
        return self.out(mixed_BQD), weight_BHQK

    def queries(self, asking_BQD: Tensor, sight: Sight) -> Tensor:
        """Computes the queries (B, H, Q, C) of tokens, multiplied by the scale and the factors of the logits."""
        return self.scaled(by_head(self.query(asking_BQD) * self.factor(sight), self._n_heads))

    def factor(self, sight: Sight) -> Tensor:
        """Returns the factor (B, Q, 1) of each query's logits, which `attention_scale` selects."""
        return LogitScale(self.scale, self.has_log_n).of(sight.log_n_BQ).unsqueeze(-1)

    def keys(self, x_BKD: Tensor) -> Tensor:
        """Returns the keys (B, H, K, C) of the tokens that are attended to."""
        if self.key is None:
            return x_BKD.unsqueeze(1).expand(-1, self._n_heads, -1, -1)
        return by_head(self.key(x_BKD), self._n_heads)

    def values(self, x_BKD: Tensor) -> Tensor:
        """Returns the values (B, H, K, E) of the tokens that are attended to."""
        return by_head(self.value(x_BKD), self._n_heads)


def by_head(x_BTX: Tensor, n_heads: int) -> Tensor:
    """Splits the channels by head: returns (B, H, T, X / H)."""
    heads_BTHX: Tensor = x_BTX.unflatten(-1, (n_heads, -1))
    return heads_BTHX.transpose(1, 2)


def attended(
    query_BHQC: Tensor,
    key_BHKC: Tensor,
    value_BHKE: Tensor,
    bias_BHQK: Tensor,
    clamp_H: Tensor | None = None,
    n_keys: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Mixes the values by the weights softmax(Q K^t + bias), which clamped heads replace: see `clamped`.

    Returns:
        The mixed values (B, Q, D), the heads side by side; and the weights (B, H, Q, K).
    """
    weight_BHQK = torch.softmax(query_BHQC @ key_BHKC.mT + bias_BHQK, dim=-1)
    weight_BHQK = clamped(weight_BHQK, bias_BHQK, clamp_H, n_keys)
    return (weight_BHQK @ value_BHKE).transpose(1, 2).flatten(2), weight_BHQK


def check_heads(d_model: int, n_heads: int, qk: str = "factored", qk_rank: int | None = None) -> None:
    """Checks the sizes of an attention layer. The arguments are those of `Attention`.

    Raises:
        SpecError: If `qk` is unknown, D is not a multiple of H, or `qk_rank` is given with `merged`.
    """
    if qk not in QK_FORMS:
        raise SpecError("qk", given=qk, expected=f"one of {', '.join(QK_FORMS)}", fix="correct the value of qk")
    if d_model % n_heads:
        raise SpecError(
            "n_heads", given=n_heads, expected=f"a divisor of d_model={d_model}", fix="change n_heads or d_model"
        )
    if qk == "merged" and qk_rank is not None:
        raise SpecError(
            "qk_rank",
            given=qk_rank,
            expected="null with qk=merged, which has no rank",
            fix="remove qk_rank, or set qk=factored",
        )
