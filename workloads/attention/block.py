"""A transformer block: attention and a feed-forward network, both with layer normalization in front.

Axes of one training: B sequence, T token, D model, H head.
"""

from torch import Tensor, nn

from attnsweep.workloads.attention.attention import Attention
from attnsweep.workloads.attention.layers import FeedForward, LayerNorm, Linear, MakesLinear
from attnsweep.workloads.attention.sight import Sight


class TransformerBlock(nn.Module):
    """A pre-norm transformer block: x' = x + Attention(LN_1 x), x'' = x' + FFN(LN_2 x').

    Args:
        d_model, n_heads, qk, qk_rank, attention_scale: See `Attention`.
        d_ffn, activation: See `FeedForward`; `None` for `d_ffn` means 4 D.
        layer_norm_eps: The epsilon of both layer normalizations, added to the variance inside the root.
        linear: Makes all linear layers.

    Source: Xiong et al. 2020, figure 1b.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        d_ffn: int | None = None,
        activation: str = "relu",
        qk: str = "factored",
        qk_rank: int | None = None,
        attention_scale: str = "inv_sqrt_d",
        layer_norm_eps: float = 1e-5,
        linear: MakesLinear = Linear,
    ) -> None:
        super().__init__()
        self.attention_norm = LayerNorm(d_model, layer_norm_eps)
        self.attention = Attention(
            d_model, n_heads, qk=qk, qk_rank=qk_rank, attention_scale=attention_scale, linear=linear
        )
        self.ffn_norm = LayerNorm(d_model, layer_norm_eps)
        self.ffn = FeedForward(d_model, d_ffn or 4 * d_model, activation=activation, linear=linear)

    def forward(self, x_BTD: Tensor, sight: Sight) -> tuple[Tensor, Tensor]:
        """Returns the output (B, T, D), and the attention weights (B, H, T, T)."""
        attended_BTD, weight_BHTT = self.attention(self.attention_norm(x_BTD), sight)
        return self.finished(x_BTD + attended_BTD), weight_BHTT

    def finished(self, x_BTD: Tensor) -> Tensor:
        """Applies LayerNorm and feed-forward network to the residual stream (B, T, D) after the attention."""
        fed: Tensor = self.ffn(self.ffn_norm(x_BTD))
        return x_BTD + fed
