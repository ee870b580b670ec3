"""A transformer: embeddings, blocks of attention and feed-forward parts, logits. Axes of one training: B sequence, T
token, Q query token, K key token, C channel of a head, H head, D model, V word."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnsweep.workloads.attention.attention import Attention, Sight, by_head
from attnsweep.workloads.attention.layers import Embedding, FeedForward, LayerNorm, Linear, sinusoids
from attnsweep.workloads.errors import SpecError

Positions = Literal["learned", "sinusoidal", "rope", "relative", "none"]
Norm = Literal["pre", "post", "none"]
Kind = Literal["softmax", "linear"]


class RelativeAttention(Attention):
    """Causal softmax attention with a learned vector r for each distance to a key, `distance` (n_tokens, d_model): the
    logits are s q (k + r). Source: Shaw, Uszkoreit & Vaswani 2018."""

    def __init__(self, d_model: int, n_heads: int, n_tokens: int, *, attention_scale: str | float) -> None:
        super().__init__(d_model, n_heads, attention_scale=attention_scale)
        self.distance = Embedding(n_tokens, d_model)

    def weights(self, query_BHQC: Tensor, key_BHKC: Tensor, sight: Sight) -> Tensor:
        n_tokens = query_BHQC.shape[2]
        logit_BHQK = query_BHQC @ by_head(self.distance.weight[None, -n_tokens:], self.n_heads).mT
        # From one logit per distance to one per key: row q (from 0) moves left by n_tokens - 1 - q.
        logit_BHQK = pad(logit_BHQK, (1, 0)).flatten(2).unflatten(2, (n_tokens + 1, n_tokens))[:, :, 1:]
        return torch.softmax(query_BHQC @ key_BHKC.mT + (sight.bias_BQK.unsqueeze(1) + logit_BHQK), dim=-1)


class RotaryAttention(Attention):
    """Attention whose queries and keys are turned by angles that grow with the position, at falling rates. Source: Su
    et al. 2021, "RoFormer"."""

    turn_KC: Tensor

    def __init__(self, d_model: int, n_heads: int, n_tokens: int, *, kind: Kind, attention_scale: str | float) -> None:
        super().__init__(d_model, n_heads, kind=kind, attention_scale=attention_scale)
        if d_model // n_heads % 2:
            expected = f"heads with an even number of channels, of d_model={d_model}, for positions=rope"
            raise SpecError("n_heads", given=n_heads, expected=expected, fix="change n_heads or d_model")
        self.register_buffer("turn_KC", sinusoids(n_tokens, d_model // n_heads))

    def queries(self, asking_BQD: Tensor, sight: Sight) -> Tensor:
        # The queries are the last of the tokens.
        return self._turned(super().queries(asking_BQD, sight), sight.bias_BQK.shape[-1])

    def keys(self, x_BKD: Tensor) -> Tensor:
        return self._turned(super().keys(x_BKD), x_BKD.shape[1])

    def _turned(self, x_BHTC: Tensor, until: int) -> Tensor:
        turn_TC = self.turn_KC[until - x_BHTC.shape[2] : until].to(x_BHTC.dtype)
        sin, cos = turn_TC[:, 0::2], turn_TC[:, 1::2]
        first, second = x_BHTC.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class TransformerBlock(nn.Module):
    """A transformer block: attention, then a feed-forward part, each with a residual connection.

    x' = x + Attention(N x), x'' = x' + FFN(N x') with norm=pre; x' = N(x + Attention(x)), x'' = N(x' + FFN(x')) with
    post, where N is a LayerNorm; without LayerNorms with none. Source: Xiong et al. 2020, figure 1.

    Args:
        d_ffn: `None` means 4 d_model, 0 no feed-forward part.
        dropout: The probability with which each number that a part adds is dropped.
    """

    attention_norm: Any  # a LayerNorm, or with norm=none nn.Identity
    ffn_norm: Any
    ffn: Any  # a FeedForward, or None

    def __init__(
        self,
        d_model: int,
        attention: Attention,
        *,
        d_ffn: int | None = None,
        activation: str = "relu",
        norm: Norm = "pre",
        layer_norm_eps: float = 1e-5,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm = norm
        width = 4 * d_model if d_ffn is None else d_ffn
        self.attention_norm = _norm(norm, d_model, layer_norm_eps)
        self.attention = attention
        self.ffn_norm = _norm(norm, d_model, layer_norm_eps) if width else nn.Identity()
        self.ffn = FeedForward(d_model, width, activation=activation) if width else None
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x_BTD: Tensor, sight: Sight, n_last: int | None = None) -> tuple[Tensor, Tensor]:
        """The output (n_sequences, n_tokens, d_model) and the attention weights (n_sequences, n_heads, n_tokens,
        n_tokens), both at the `n_last` last tokens if given."""
        read_BTD = x_BTD if self.norm == "post" else self.attention_norm(x_BTD)
        if n_last is None:
            attended_BTD, weight_BHTT = self.attention(read_BTD, sight)
        else:
            x_BTD, asking_BTD = x_BTD[:, -n_last:], read_BTD[:, -n_last:]
            sight = Sight(sight.bias_BQK[:, -n_last:], sight.log_n_BQ[:, -n_last:])
            attended_BTD, weight_BHTT = self.attention.attend(
                asking_BTD, self.attention.keys(read_BTD), self.attention.values(read_BTD), sight
            )
        return self.finished(self._after(self.attention_norm, x_BTD + self.dropout(attended_BTD))), weight_BHTT

    def finished(self, x_BTD: Tensor) -> Tensor:
        """The feed-forward part, on the residual stream (n_sequences, n_tokens, d_model) after attention."""
        if self.ffn is None:
            return x_BTD
        added_BTD = self.ffn(x_BTD if self.norm == "post" else self.ffn_norm(x_BTD))
        return self._after(self.ffn_norm, x_BTD + self.dropout(added_BTD))

    def _after(self, norm: nn.Module, x_BTD: Tensor) -> Tensor:
        normed_BTD: Tensor = norm(x_BTD) if self.norm == "post" else x_BTD
        return normed_BTD


class Transformer(nn.Module):
    """A transformer that reads tokens and returns logits at each of them, (n_sequences, n_tokens, n_answers).

    Args:
        n_words, n_tokens: The number of words, and of tokens in the longest sequence.
        n_answers: The number of logits; `None` = `n_words`.
        n_heads, qk, qk_rank: See `Attention`.
        d_ffn, activation, norm, dropout: See `TransformerBlock`; `dropout` is that of embeddings too.
        attention: The `kind` of `Attention`.
        attention_scale: See `Attention`. It may differ within a pack, as `layer_norm_eps` may.
        positions: `learned` or `sinusoidal` embeddings, `rope` (`RotaryAttention`), `relative` (`RelativeAttention`,
            for causal softmax attention), or `none`.
        tied: Whether the logits are x W^t, without a bias, where W are the embeddings of the words.

    With `init_sigma` null all layers start as PyTorch's do.
    """

    position_TD: Tensor
    last_norm: Any  # as in a block

    def __init__(
        self,
        n_words: int,
        n_tokens: int,
        *,
        n_answers: int | None = None,
        d_model: int = 32,
        n_blocks: int = 2,
        n_heads: int = 1,
        d_ffn: int | None = None,
        activation: str = "relu",
        attention: Kind = "softmax",
        attention_scale: str | float = "inv_sqrt_d",
        qk: str = "factored",
        qk_rank: int | None = None,
        positions: Positions = "learned",
        norm: Norm = "pre",
        layer_norm_eps: float = 1e-5,
        is_causal: bool = True,
        tied: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.token = Embedding(n_words, d_model)
        self.position = Embedding(n_tokens, d_model) if positions == "learned" else None
        if positions == "sinusoidal":
            self.register_buffer("position_TD", sinusoids(n_tokens, d_model))
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

        is_plain, scale = qk == "factored" and qk_rank is None, attention_scale
        fits = {"rope": is_plain, "relative": is_plain and is_causal and attention == "softmax"}.get(positions, True)
        if tied and n_answers not in (None, n_words):
            raise SpecError("n_answers", given=n_answers, expected="as many answers as words", fix="choose tied=False")
        if not fits:
            expected = "rope or relative with qk=factored, relative with causal softmax attention"
            raise SpecError("positions", given=positions, expected=expected, fix="choose positions=learned")

        def layer() -> Attention:
            if positions == "relative":
                return RelativeAttention(d_model, n_heads, n_tokens, attention_scale=scale)
            if positions == "rope":
                return RotaryAttention(d_model, n_heads, n_tokens, kind=attention, attention_scale=scale)
            return Attention(d_model, n_heads, kind=attention, qk=qk, qk_rank=qk_rank, attention_scale=scale)

        self.blocks = nn.ModuleList(
            TransformerBlock(
                d_model,
                layer(),
                d_ffn=d_ffn,
                activation=activation,
                norm=norm,
                layer_norm_eps=layer_norm_eps,
                dropout=dropout,
            )
            for _ in range(n_blocks)
        )
        self.last_norm = _norm("none" if norm == "post" else norm, d_model, layer_norm_eps)
        self.head = None if tied else Linear(d_model, n_answers or n_words)
        self.positions, self.is_causal = positions, is_causal

    def forward(self, token_BT: Tensor) -> Tensor:
        return self.logits(self.states(token_BT)[0])

    def states(self, token_BT: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The residual stream after the last block, (n_sequences, n_tokens, d_model), and each block's attention
        weights (n_sequences, n_heads, n_tokens, n_tokens)."""
        x_BTD, weights = self.embedded(token_BT), []
        sight = self.sight(x_BTD)
        for block in self.blocks:
            x_BTD, weight_BHTT = block(x_BTD, sight)
            weights.append(weight_BHTT)
        return x_BTD, weights

    def attention(self, token_BT: Tensor) -> Tensor:
        """The attention weights of all blocks, (n_blocks, n_sequences, n_heads, n_tokens, n_tokens)."""
        return torch.stack(self.states(token_BT)[1])

    def last(self, token_BT: Tensor) -> Tensor:
        """The logits at the last token, (n_sequences, n_answers). Only `relative` computes others in the last block."""
        if self.positions == "relative":
            logits_BTV: Tensor = self(token_BT)
            return logits_BTV[:, -1]
        x_BTD = self.embedded(token_BT)
        sight = self.sight(x_BTD)
        for number, block in enumerate(self.blocks, 1):
            x_BTD, _ = block(x_BTD, sight, n_last=1 if number == len(self.blocks) else None)
        return self.logits(x_BTD)[:, -1]

    def sight(self, x_BTD: Tensor) -> Sight:
        return Sight.causal(x_BTD) if self.is_causal else Sight.everything(x_BTD)

    def embedded(self, token_BT: Tensor, first: int = 0) -> Tensor:
        """The embeddings (n_sequences, n_tokens, d_model) of tokens from position `first` on."""
        x_BTD: Tensor = self.token(token_BT)
        places = slice(first, first + token_BT.shape[1])
        if self.position is not None:
            x_BTD = x_BTD + self.position.weight[places]
        elif self.positions == "sinusoidal":
            x_BTD = x_BTD + self.position_TD[places].to(x_BTD.dtype)
        dropped_BTD: Tensor = self.dropout(x_BTD)
        return dropped_BTD

    def logits(self, x_BTD: Tensor) -> Tensor:
        """The logits (n_sequences, n_tokens, n_answers) of the residual stream after the last block."""
        x_BTD = self.last_norm(x_BTD)
        return x_BTD @ self.token.weight.T if self.head is None else self.head(x_BTD)


def _norm(norm: Norm, d_model: int, layer_norm_eps: float) -> nn.Module:
    return nn.Identity() if norm == "none" else LayerNorm(d_model, layer_norm_eps)
