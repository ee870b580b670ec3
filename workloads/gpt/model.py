"""Token and position embeddings, pre-norm blocks, a last LayerNorm, and logits of the next token. Source: Boue 2025,
"Deep learning for pedestrians: backpropagation in Transformers", Table 2."""

from dataclasses import asdict, dataclass

from attnsweep.workloads.attention.transformer import Positions, Transformer

POSITIONS = ("learned", "sinusoidal", "none")


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTShape:
    """The static arguments of `Transformer`."""

    n_words: int
    n_tokens: int
    d_model: int
    n_blocks: int = 1
    n_heads: int = 1
    d_ffn: int | None = None
    positions: Positions = "learned"
    tied: bool = False
    is_causal: bool = True
    qk: str = "factored"
    qk_rank: int | None = None
    activation: str = "relu"


class GPT(Transformer):
    def __init__(self, shape: GPTShape, *, attention_scale: str = "inv_sqrt_d", layer_norm_eps: float = 1e-5) -> None:
        super().__init__(**asdict(shape), attention_scale=attention_scale, layer_norm_eps=layer_norm_eps)
        self.shape = shape
