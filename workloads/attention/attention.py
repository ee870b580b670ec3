"""Multi-head attention, which also returns its weights: masks, scales of the logits, interventions on heads.

Axes of one training: B sequence (1 if all sequences have the same mask), T token, Q query token, K key token, D model,
H head, C channel of a query and a key, E = D / H channel of a value.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.layers import Linear
from attnsweep.workloads.declaration import parameter
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.interventions import CLAMP, LOGIT_FACTOR, PATTERNS, pattern_number

QK_FORMS = ("factored", "merged")
ATTENTION_SCALES = ("inv_sqrt_d", "one", "log_n_inv_sqrt_d")


@dataclass(frozen=True, slots=True)
class Sight:
    """An attention mask.

    Attributes:
        bias_BQK: Added to the logits: 0, or -infinity where a key is not seen. Every query sees some key.
        log_n_BQ: The logarithm of the number of keys that a query sees.
    """

    bias_BQK: Tensor
    log_n_BQ: Tensor

    @classmethod
    def of(cls, seen_BQK: Tensor, dtype: torch.dtype) -> "Sight":
        """From a mask, true where a query sees a key. Each must see one: the softmax over no key is NaN."""
        bias_BQK = torch.zeros_like(seen_BQK, dtype=dtype).masked_fill(~seen_BQK, -torch.inf)
        return cls(bias_BQK, seen_BQK.sum(-1).to(dtype).log())

    @classmethod
    def causal(cls, like: Tensor) -> "Sight":
        """A token of `like` (n_sequences, n_tokens, d_model) sees no later ones."""
        return cls.of(_all(like).tril(), like.dtype)

    @classmethod
    def everything(cls, like: Tensor) -> "Sight":
        return cls.of(_all(like), like.dtype)


def _all(like: Tensor) -> Tensor:
    return torch.ones(1, like.shape[1], like.shape[1], dtype=torch.bool, device=like.device)


def logit_scale(attention_scale: str | float, d_head: int) -> dict[str, Tensor]:
    """The buffers that `logit_factor` takes. A number is in units of 1 / sqrt(d_head), a name one of
    `ATTENTION_SCALES`."""
    factor = 1.0 if isinstance(attention_scale, str) else attention_scale
    scale = 1.0 if attention_scale == "one" else factor * d_head**-0.5
    has_log_n = attention_scale == "log_n_inv_sqrt_d"
    return {"scale": torch.tensor(scale, dtype=torch.float64), "has_log_n": torch.tensor(has_log_n)}


def logit_factor(scale: Tensor, has_log_n: Tensor, log_n: Tensor) -> Tensor:
    """`scale`, or log(n) times it for a query that sees n keys (Chiang & Cholak 2022, equation 2). At n = 1 it is 0,
    which changes nothing: the softmax over one key is 1."""
    return scale * torch.where(has_log_n, log_n, 1.0)


class HoldableHeads(nn.Module):
    """An attention layer whose heads can be clamped to fixed patterns, or have their logits scaled: it passes its
    queries through `scaled`, and takes its weights from `attended` or `clamped`.

    Args:
        patterns: The names among `PATTERNS` that its heads can be clamped to.

    Attributes:
        clamp_H: Each head's `pattern_number`, or 0; `None` if no training of the pack clamps a head of this layer.
        logit_factor_H: The factor of each head's logits; `None` if no training of the pack scales one.
    """

    clamp_H: Tensor | None
    logit_factor_H: Tensor | None

    def __init__(self, n_heads: int, patterns: tuple[str, ...] = PATTERNS) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.patterns = patterns
        self.register_buffer(CLAMP, None)
        self.register_buffer(LOGIT_FACTOR, None)

    def scaled(self, query_BHQC: Tensor) -> Tensor:
        if self.logit_factor_H is None:
            return query_BHQC
        return query_BHQC * self.logit_factor_H.view(-1, 1, 1)


def clamped(weight_BHQK: Tensor, bias_BHQK: Tensor, clamp_H: Tensor | None, n_keys: int | None = None) -> Tensor:
    """Replaces the attention weights of clamped heads by their fixed patterns.

    Args:
        bias_BHQK: What was added to the logits: -infinity where a key is not seen. It broadcasts.
        clamp_H: See `HoldableHeads`.
        n_keys: The number of keys that are tokens, of which the queries are the last; those behind them fill up a
            vector. `None` for all.
    """
    if clamp_H is None:
        return weight_BHQK
    Q, K = weight_BHQK.shape[-2:]
    seen_BHQK = (bias_BHQK > -torch.inf).to(weight_BHQK)
    position_K = torch.arange(K, device=weight_BHQK.device)
    own_Q1 = position_K[:Q].unsqueeze(1) + ((n_keys or K) - Q)
    own_QK = (position_K == own_Q1).to(weight_BHQK)
    patterns = {"uniform": seen_BHQK / seen_BHQK.sum(-1, keepdim=True), "none": torch.zeros_like(own_QK)}
    for name, offset in (("previous_token", -1), ("self", 0), ("next_token", 1)):
        one_BHQK = (position_K == own_Q1 + offset) * seen_BHQK
        patterns[name] = one_BHQK + (1 - one_BHQK.sum(-1, keepdim=True)) * own_QK
    for name in PATTERNS:
        weight_BHQK = torch.where(clamp_H.view(-1, 1, 1) == pattern_number(name), patterns[name], weight_BHQK)
    return weight_BHQK


def attended(
    query_BHQC: Tensor,
    key_BHKC: Tensor,
    value_BHKE: Tensor,
    bias_BHQK: Tensor,
    clamp_H: Tensor | None = None,
    n_keys: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Mixes values by softmax(Q K^t + bias), or by the patterns of clamped heads: (B, Q, D), the heads side by side;
    and the weights, (B, H, Q, K)."""
    weight_BHQK = torch.softmax(query_BHQC @ key_BHKC.mT + bias_BHQK, dim=-1)
    weight_BHQK = clamped(weight_BHQK, bias_BHQK, clamp_H, n_keys)
    return side_by_side(weight_BHQK @ value_BHKE), weight_BHQK


def by_head(x_BTX: Tensor, n_heads: int) -> Tensor:
    """Splits the channels: (B, H, T, channels per head)."""
    heads_BTHX: Tensor = x_BTX.unflatten(-1, (n_heads, -1))
    return heads_BTHX.transpose(1, 2)


def side_by_side(x_BHTC: Tensor) -> Tensor:
    return x_BHTC.transpose(1, 2).flatten(2)


class Attention(HoldableHeads):
    """Multi-head attention: softmax(s Q K^t + mask) V in each head; the heads' outputs, side by side, pass through a
    linear layer.

    With `factored`, Q = x W_q^t + b_q and K = x W_k^t + b_k have C = `qk_rank` channels per head. With `merged`, the
    product of the two matrices is one parameter: Q = x W^t + c has C = D channels per head, and the keys are the tokens
    themselves. Both forms express the same functions if `qk_rank` >= D (a key bias adds the same number to all logits
    of a query, which softmax ignores), but gradient descent takes different paths in them.

    A subclass can replace `weights` to compute attention weights in another way.

    Args:
        qk: The form of the logits, one of `QK_FORMS`.
        qk_rank: The channels C of a head's queries and keys, for `factored`; `None` = D / H.
        kind: `softmax`, or `linear`: weights s Q K^t, divided by the number of keys that a query sees.
        attention_scale: The factor s of the logits, or its name: see `logit_scale`, with d = C for `factored`, D / H
            for `merged`. It may differ within a pack.

    Source: Vaswani et al. 2017, section 3.2.
    """

    scale: Tensor
    has_log_n: Tensor

    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        kind: str = "softmax",
        qk: str = "factored",
        qk_rank: int | None = None,
        attention_scale: str | float = "inv_sqrt_d",
    ) -> None:
        super().__init__(n_heads)
        self.kind = kind
        check_heads(d_model, n_heads, qk, qk_rank)
        C = d_model if qk == "merged" else qk_rank or d_model // n_heads
        self.query = Linear(d_model, n_heads * C)
        self.key = Linear(d_model, n_heads * C) if qk == "factored" else None
        self.value = Linear(d_model, d_model)
        self.out = Linear(d_model, d_model)
        for name, value in logit_scale(attention_scale, d_model // n_heads if qk == "merged" else C).items():
            self.register_buffer(name, value)

    def forward(self, x_BTD: Tensor, sight: Sight) -> tuple[Tensor, Tensor]:
        """Self-attention: the output (n_sequences, n_tokens, d_model), and the weights (see `attend`)."""
        return self.attend(x_BTD, self.keys(x_BTD), self.values(x_BTD), sight)

    def attend(self, asking_BQD: Tensor, key_BHKC: Tensor, value_BHKE: Tensor, sight: Sight) -> tuple[Tensor, Tensor]:
        """The output (n_sequences, n_queries, d_model) at the tokens `asking_BQD`, by the `keys` and `values` of the
        attended ones; and the attention weights (n_sequences, n_heads, n_queries, n_keys)."""
        weight_BHQK = self.weights(self.queries(asking_BQD, sight), key_BHKC, sight)
        weight_BHQK = clamped(weight_BHQK, sight.bias_BQK.unsqueeze(1), self.clamp_H)
        return self.out(side_by_side(weight_BHQK @ value_BHKE)), weight_BHQK

    def weights(self, query_BHQC: Tensor, key_BHKC: Tensor, sight: Sight) -> Tensor:
        """The attention weights (n_sequences, n_heads, n_queries, n_keys) from scaled queries, before clamping."""
        if self.kind == "linear":
            is_seen_BQK = (sight.bias_BQK == 0).to(query_BHQC.dtype)
            return (query_BHQC @ key_BHKC.mT) * (is_seen_BQK / is_seen_BQK.sum(-1, keepdim=True)).unsqueeze(1)
        return torch.softmax(query_BHQC @ key_BHKC.mT + sight.bias_BQK.unsqueeze(1), dim=-1)

    def queries(self, asking_BQD: Tensor, sight: Sight) -> Tensor:
        """(n_sequences, n_heads, n_queries, n_channels), with the logits' scale and their heads' factors."""
        factor_BQ1 = logit_factor(self.scale, self.has_log_n, sight.log_n_BQ).unsqueeze(-1)
        return self.scaled(by_head(self.query(asking_BQD) * factor_BQ1, self.n_heads))

    def keys(self, x_BKD: Tensor) -> Tensor:
        """(n_sequences, n_heads, n_keys, n_channels), of the attended tokens."""
        if self.key is None:
            return x_BKD.unsqueeze(1).expand(-1, self.n_heads, -1, -1)
        return by_head(self.key(x_BKD), self.n_heads)

    def values(self, x_BKD: Tensor) -> Tensor:
        """(n_sequences, n_heads, n_keys, n_value_channels), of the attended tokens."""
        return by_head(self.value(x_BKD), self.n_heads)


def check_heads(d_model: int, n_heads: int, qk: str = "factored", qk_rank: int | None = None) -> None:
    if qk not in QK_FORMS:
        raise SpecError("qk", given=qk, expected=f"one of {', '.join(QK_FORMS)}", fix="correct the value of qk")
    if d_model % n_heads:
        expected = f"a divisor of d_model={d_model}"
        raise SpecError("n_heads", given=n_heads, expected=expected, fix="change n_heads or d_model")
    if qk == "merged" and qk_rank is not None:
        no_rank, fix = "null with qk=merged, which has no rank", "remove qk_rank, or set qk=factored"
        raise SpecError("qk_rank", given=qk_rank, expected=no_rank, fix=fix)


def qk_parameter() -> Any:
    doc = "train the matrices of queries and keys (factored), or their product as one parameter (merged)"
    return parameter("factored", doc, choices=QK_FORMS, static=True)


def qk_rank_parameter() -> Any:
    doc = "factored: width of a head's queries and keys; null = d_model / n_heads"
    return parameter(None, doc, low=1, high=10_000, static=True)


def attention_scale_parameter() -> Any:
    doc = "factor of the logits; d = width of a head's queries (merged: d_model / n_heads), n = keys that a query sees"
    return parameter("inv_sqrt_d", doc, choices=ATTENTION_SCALES)
