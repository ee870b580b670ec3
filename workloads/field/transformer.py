"""The small transformer that the problems of this folder use, with or without feed-forward parts and LayerNorms.

Axes of one training: B sequence, T token, C context, V vocabulary, D model, H head.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnsweep.workloads.attention.attention import Attention, Sight, by_head
from attnsweep.workloads.attention.layers import Embedding, FeedForward, LayerNorm, Linear

Positions = Literal["learned", "relative", "none"]
Kind = Literal["softmax", "linear"]


class RelativeAttention(Attention):
    """Attention with relative positions: a learned vector for each distance between query and key is added to the key.

    The logits are s Q (K + R)^t, where s is a scale and R holds the learned vectors.

    The layer is for causal attention with as many queries as keys. Source: Shaw, Uszkoreit & Vaswani 2018.

    Attributes:
        distance: (n_context, n_heads * channels), the learned keys of the distances n_context - 1 to 0.
    """

    def __init__(self, d_model: int, n_heads: int, n_context: int) -> None:
        super().__init__(d_model, n_heads)
        self.distance = Embedding(n_context, d_model)

    def weights(self, query_BHQC: Tensor, key_BHKC: Tensor, sight: Sight) -> Tensor:
        n_tokens = query_BHQC.shape[2]
        logit_BHQK = query_BHQC @ by_head(self.distance.weight[None, -n_tokens:], self.n_heads).mT
        # Each query (row) has one logit per distance to a key. To get one logit per key, row q (counted from 0) is
        # shifted to the left by n_tokens - 1 - q.
        logit_BHQK = pad(logit_BHQK, (1, 0)).flatten(2).unflatten(2, (n_tokens + 1, n_tokens))[:, :, 1:]
        return torch.softmax(query_BHQC @ key_BHKC.mT + (sight.bias_BQK.unsqueeze(1) + logit_BHQK), dim=-1)


class LinearAttention(Attention):
    """Attention without a softmax: the weights are the scaled products of queries and keys, divided by the number of
    keys that a query may attend to."""

    def weights(self, query_BHQC: Tensor, key_BHKC: Tensor, sight: Sight) -> Tensor:
        is_seen_BQK = (sight.bias_BQK == 0).to(query_BHQC.dtype)
        mean_BQK = is_seen_BQK / is_seen_BQK.sum(-1, keepdim=True)
        return (query_BHQC @ key_BHKC.mT) * mean_BQK.unsqueeze(1)


class Block(nn.Module):
    """A transformer block: attention, then a feed-forward part, each with a residual connection and an optional
    LayerNorm of its input.

    x' = x + Attention(N x), x'' = x' + FFN(N x'), where N is a LayerNorm or the identity.

    Args:
        d_ffn: Width of the feed-forward part; 0 for none.
        layer_norm_eps: Added to the variance, inside the root; `None` for no LayerNorm.
    """

    def __init__(
        self, attention: Attention, d_model: int, *, d_ffn: int, layer_norm_eps: float | None, activation: str
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = _norm(d_model, layer_norm_eps)
        self.ffn = FeedForward(d_model, d_ffn, activation=activation) if d_ffn else None
        self.ffn_norm = _norm(d_model, layer_norm_eps) if d_ffn else None

    def forward(self, x_BTD: Tensor, sight: Sight) -> tuple[Tensor, Tensor]:
        """Returns the output (n_sequences, n_tokens, d_model) and the attention weights (n_sequences, n_heads,
        n_tokens, n_tokens)."""
        attended_BTD, weight_BHTT = self.attention(self.attention_norm(x_BTD), sight)
        return self._fed(x_BTD + attended_BTD), weight_BHTT

    def last(self, x_BTD: Tensor, sight: Sight) -> Tensor:
        """Returns the block's output at the last token, (n_sequences, 1, d_model), without computing it at the other
        tokens."""
        read_BTD = self.attention_norm(x_BTD)
        keys_and_values = self.attention.keys(read_BTD), self.attention.values(read_BTD)
        last_sight = Sight(sight.bias_BQK[:, -1:], sight.log_n_BQ[:, -1:])
        attended_B1D, _ = self.attention.attend(read_BTD[:, -1:], *keys_and_values, last_sight)
        return self._fed(x_BTD[:, -1:] + attended_B1D)

    def _fed(self, x_BTD: Tensor) -> Tensor:
        if self.ffn is None or self.ffn_norm is None:
            return x_BTD
        fed_BTD: Tensor = x_BTD + self.ffn(self.ffn_norm(x_BTD))
        return fed_BTD


class Transformer(nn.Module):
    """A transformer with logits at each token, whose attention, positions and LayerNorm can be chosen.

    Args:
        n_answers: The number of logits at each token; `None` = `n_words`.
        d_model, d_ffn, layer_norm_eps, activation: See `Block`.
        attention_scale: The factor of the logits, in units of 1 / sqrt(d_model / n_heads).
        positions: `learned`, `relative` (in every block, for causal softmax attention), or `none`.

    Under `init_sigma` null all layers are initialized as PyTorch's layers are.
    """

    def __init__(
        self,
        n_words: int,
        n_context: int,
        *,
        n_answers: int | None = None,
        d_model: int = 32,
        n_blocks: int = 1,
        n_heads: int = 1,
        d_ffn: int = 0,
        attention: Kind = "softmax",
        attention_scale: float = 1.0,
        layer_norm_eps: float | None = 1e-5,
        activation: str = "relu",
        positions: Positions = "learned",
        is_causal: bool = True,
    ) -> None:
        super().__init__()
        self.token = Embedding(n_words, d_model)
        self.position = Embedding(n_context, d_model) if positions == "learned" else None
        self.blocks = nn.ModuleList()
        for _ in range(n_blocks):
            if positions == "relative":
                layer: Attention = RelativeAttention(d_model, n_heads, n_context)
            else:
                layer = (Attention if attention == "softmax" else LinearAttention)(d_model, n_heads)
            # The scale is a buffer, so that trainings with different scales can share one program.
            layer.scale *= attention_scale
            self.blocks.append(Block(layer, d_model, d_ffn=d_ffn, layer_norm_eps=layer_norm_eps, activation=activation))
        self.last_norm = _norm(d_model, layer_norm_eps)
        self.head = Linear(d_model, n_answers or n_words)
        self._is_causal = is_causal

    def forward(self, token_BT: Tensor) -> Tensor:
        """Returns the logits at all tokens, (n_sequences, n_tokens, n_words)."""
        return self.trace(token_BT)[0]

    def trace(self, token_BT: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Returns the logits that `forward` computes, and the attention weights (n_sequences, n_heads, n_tokens,
        n_tokens) of each block."""
        x_BTD, weights = self.states(token_BT)
        return self.head(x_BTD), weights

    def states(self, token_BT: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Returns the normalized hidden states that the last linear layer reads, (n_sequences, n_tokens, d_model), and
        the attention weights of each block."""
        x_BTD, sight = self._read(token_BT)
        weights = []
        for block in self.blocks:
            x_BTD, weight_BHTT = block(x_BTD, sight)
            weights.append(weight_BHTT)
        return self.last_norm(x_BTD), weights

    def last(self, token_BT: Tensor) -> Tensor:
        """Returns the logits at the last token, (n_sequences, n_words). The last block is computed at that token
        alone."""
        x_BTD, sight = self._read(token_BT)
        *blocks, last = (block for block in self.blocks if isinstance(block, Block))
        for block in blocks:
            x_BTD, _ = block(x_BTD, sight)
        logits_BV: Tensor = self.head(self.last_norm(last.last(x_BTD, sight)))[:, 0]
        return logits_BV

    def _read(self, token_BT: Tensor) -> tuple[Tensor, Sight]:
        x_BTD = self.token(token_BT)
        if self.position is not None:
            x_BTD = x_BTD + self.position.weight[: token_BT.shape[1]]
        return x_BTD, Sight.causal(x_BTD) if self._is_causal else Sight.everything(x_BTD)

    def attention(self, token_BT: Tensor) -> Tensor:
        """Returns the attention weights of all blocks, (n_blocks, n_sequences, n_heads, n_tokens, n_tokens)."""
        return torch.stack(self.trace(token_BT)[1])


def _norm(d_model: int, layer_norm_eps: float | None) -> nn.Module:
    return nn.Identity() if layer_norm_eps is None else LayerNorm(d_model, layer_norm_eps)
