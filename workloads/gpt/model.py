"""The minimal GPT: token and position embeddings, pre-norm blocks, a last LayerNorm, and logits of the next token.

Axes of one training: B sequence, T token, C context (the largest number of tokens in a sequence), V vocabulary, D
model, H head, N block.
Source: Boue 2025, "Deep learning for pedestrians: backpropagation in Transformers", Table 2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.attention import Sight, TransformerBlock
from attnsweep.workloads.attention.layers import Embedding, LayerNorm, Linear, sinusoids
from attnsweep.workloads.engine.initialization import DrawnByEngine

POSITIONS = ("learned", "sinusoidal", "none")


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTShape:
    """The sizes and options of a GPT, named like the workload's parameters. Trainings in one batched program have the
    same values.

    Attributes:
        d_ffn: Width of the feed-forward parts; `None` = 4 d_model.
        tied: Whether the logits are x tok^t, without a bias, where tok are the token embeddings.
    """

    n_words: int
    n_tokens: int
    d_model: int
    n_blocks: int = 1
    n_heads: int = 1
    d_ffn: int | None = None
    positions: str = "learned"
    tied: bool = False
    is_causal: bool = True
    qk: str = "factored"
    qk_rank: int | None = None
    activation: str = "relu"


class GPT(nn.Module, DrawnByEngine):
    """A GPT that reads tokens and computes at each token the logits of the next one.

    Args:
        attention_scale, layer_norm_eps: Values in which trainings of one program may differ.

    Attributes:
        position: The learned position embeddings (n_context, d_model), or `None`.
        position_CD: Sines and cosines, if positions are sinusoidal.
        head: The last linear layer; `None` if tied.
    """

    position_CD: Tensor

    def __init__(
        self,
        shape: GPTShape,
        *,
        attention_scale: str = "inv_sqrt_d",
        layer_norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        V, C, D = shape.n_words, shape.n_tokens, shape.d_model
        self.token = Embedding(V, D)
        self.position = nn.Parameter(torch.zeros(C, D)) if shape.positions == "learned" else None
        if shape.positions == "sinusoidal":
            self.register_buffer("position_CD", sinusoids(C, D))
        self.blocks = nn.ModuleList(
            TransformerBlock(
                D,
                shape.n_heads,
                d_ffn=shape.d_ffn,
                activation=shape.activation,
                qk=shape.qk,
                qk_rank=shape.qk_rank,
                attention_scale=attention_scale,
                layer_norm_eps=layer_norm_eps,
            )
            for _ in range(shape.n_blocks)
        )
        self.last_norm = LayerNorm(D, layer_norm_eps)
        self.head = None if shape.tied else Linear(D, V)
        self.shape = shape

    def forward(self, token_BT: Tensor) -> Tensor:
        """Returns the logits of the next token after each token, (n_sequences, n_tokens, n_words)."""
        return self.trace(token_BT)[0]

    def trace(self, token_BT: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Returns the logits (n_sequences, n_tokens, n_words) of `forward`, and the attention weights (n_sequences,
        n_heads, n_tokens, n_tokens) of each block."""
        x_BTD = self.embedded(token_BT)
        sight = Sight.causal(x_BTD) if self.shape.is_causal else Sight.everything(x_BTD)
        weights = []
        for block in self.blocks:
            x_BTD, weight_BHTT = block(x_BTD, sight)
            weights.append(weight_BHTT)
        return self.logits(x_BTD), weights

    def attention(self, token_BT: Tensor) -> Tensor:
        """Returns the attention weights of all blocks, (n_blocks, n_sequences, n_heads, n_tokens, n_tokens)."""
        return torch.stack(self.trace(token_BT)[1])

    def embedded(self, token_BT: Tensor, first: int = 0) -> Tensor:
        """Returns the embeddings (n_sequences, n_tokens, d_model) of consecutive tokens, the first of which is at
        position `first`."""
        x_BTD: Tensor = self.token(token_BT)
        positions = slice(first, first + token_BT.shape[1])
        if self.shape.positions == "none":
            return x_BTD
        return x_BTD + (self.position_CD if self.position is None else self.position)[positions]

    def logits(self, x_BTD: Tensor) -> Tensor:
        """Returns the logits (n_sequences, n_tokens, n_words), given the residual stream (n_sequences, n_tokens,
        d_model) after the last block."""
        x_BTD = self.last_norm(x_BTD)
        return x_BTD @ self.token.weight.T if self.head is None else self.head(x_BTD)
