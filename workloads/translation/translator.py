"""The translator: a pre-norm encoder-decoder with one block each, and dropout.

    x' = x + Attention(LN(x)),  x'' = x' + FFN(LN(x')),  and LN again at the end of encoder and decoder

Axes: B sentence, S source token, T target token, Q query token, K key token, R = B S or B T row, D model, H head, C
channel of a head, E keys and values of all heads, W feed-forward, V word, P position.
Source: Conti 2024, chapter 3; pre-norm: Xiong et al. 2020; where dropout is applied: Vaswani et al. 2017, section 5.4.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

from attnsweep.workloads.attention.attention import HoldableHeads, Sight, attended, by_head, logit_factor, logit_scale
from attnsweep.workloads.attention.layers import LayerNorm, sinusoids
from attnsweep.workloads.interventions import BY_POSITION, PATTERNS

Sights = Mapping[str, Sight]

LAYERS = ("encoder_self", "decoder_self", "cross")
"""In the order of the `heads` table's column `layer`."""
CROSS_PATTERNS = tuple(name for name in PATTERNS if name not in BY_POSITION)
"""Those that make sense for queries and keys of different sentences."""

_VECTOR = 16
"""Keys are padded to a multiple: a softmax over ten takes several times as long as over a vector of sixteen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslatorShape:
    """Vocabularies include specials.

    Attributes:
        longest: Tokens of the longest sentence of both languages.
        eps_inside_root: See `attnsweep.LayerNorm`.
        qk, qk_rank: See `attnsweep.Attention`.
    """

    n_source_words: int
    n_target_words: int
    longest: int
    d_model: int
    n_heads: int
    d_ffn: int
    eps_inside_root: bool = True
    qk: str = "factored"
    qk_rank: int | None = None
    dropout: float = 0.0

    @property
    def value_width(self) -> int:
        """Channels of a head's values."""
        return self.d_model // self.n_heads

    @property
    def key_width(self) -> int:
        """Channels of a head's queries and keys; d_model if merged: then the tokens are the keys."""
        return self.d_model if self.qk == "merged" else self.qk_rank or self.value_width

    @property
    def made_keys(self) -> int:
        """Key channels that a layer computes for all heads; 0 if merged."""
        return 0 if self.qk == "merged" else self.n_heads * self.key_width


class Attention(HoldableHeads):
    """Multi-head attention on rows. Initial values are drawn by parameter name, so all forms use the names of the
    default one, whose queries have as many channels as the model."""

    def __init__(self, shape: TranslatorShape, patterns: tuple[str, ...] = PATTERNS) -> None:
        super().__init__(shape.n_heads, patterns)
        D, HC = shape.d_model, shape.n_heads * shape.key_width
        self.query_weight_DD = nn.Parameter(torch.zeros(D, HC))
        self.query_bias_D = nn.Parameter(torch.zeros(HC))
        self.key_value_weight_DE = nn.Parameter(torch.zeros(D, shape.made_keys + D))
        self.key_value_bias_E = nn.Parameter(torch.zeros(shape.made_keys + D))
        self.out_weight_DD = nn.Parameter(torch.zeros(D, D))
        self.out_bias_D = nn.Parameter(torch.zeros(D))
        self._widths = [shape.made_keys, D]

    def forward(self, asking_RD: Tensor, asked_RD: Tensor, sight: Sight, factor_BQ: Tensor) -> tuple[Tensor, Tensor]:
        """The output of each query, (R, D), and the weights, (B, H, Q, K)."""
        B, Q, n_keys = sight.bias_BQK.shape
        n_filled = -n_keys % _VECTOR
        query = torch.addmm(self.query_bias_D, asking_RD, self.query_weight_DD) * factor_BQ.view(B * Q, 1)
        key_value_RE = torch.addmm(self.key_value_bias_E, asked_RD, self.key_value_weight_DE)
        key_value_BKE = pad(key_value_RE.view(B, n_keys, -1), (0, 0, 0, n_filled))
        key, value = key_value_BKE.split(self._widths, dim=-1)
        query_BHQC = self.scaled(by_head(query.view(B, Q, -1), self.n_heads))
        value_BHKC = by_head(value, self.n_heads)
        if key.shape[-1]:
            key_BHKC = by_head(key, self.n_heads)
        else:
            key_BHKC = pad(asked_RD.view(B, 1, n_keys, -1), (0, 0, 0, n_filled))
        bias_B1QK = pad(sight.bias_BQK, (0, n_filled), value=-torch.inf).unsqueeze(1)
        mixed_BQD, weight_BHQK = attended(query_BHQC, key_BHKC, value_BHKC, bias_B1QK, self.clamp_H, n_keys)
        out_RD = torch.addmm(self.out_bias_D, mixed_BQD.flatten(0, 1), self.out_weight_DD)
        return out_RD, weight_BHQK[..., :n_keys]


class FeedForward(nn.Module):
    """W_2 relu(W_1 x + b_1) + b_2."""

    def __init__(self, shape: TranslatorShape) -> None:
        super().__init__()
        D, W = shape.d_model, shape.d_ffn
        self.first_weight_DW = nn.Parameter(torch.zeros(D, W))
        self.first_bias_W = nn.Parameter(torch.zeros(W))
        self.second_weight_WD = nn.Parameter(torch.zeros(W, D))
        self.second_bias_D = nn.Parameter(torch.zeros(D))

    def forward(self, x_RD: Tensor) -> Tensor:
        hidden_RW = torch.relu(torch.addmm(self.first_bias_W, x_RD, self.first_weight_DW))
        return torch.addmm(self.second_bias_D, hidden_RW, self.second_weight_WD)


class Translator(nn.Module):
    """Reads a source sentence and the beginning of the target sentence, and computes logits of the next target word.

    Attributes:
        source_embedding_VD, target_embedding_VD: Are multiplied by sqrt(D).
        position_PD: `sinusoids`, added to the embeddings.
        layer_norm_eps: Of all LayerNorms.
        scale, has_log_n: See `logit_factor`.
    """

    position_PD: Tensor
    layer_norm_eps: Tensor
    scale: Tensor
    has_log_n: Tensor

    def __init__(
        self, shape: TranslatorShape, attention_scale: str = "inv_sqrt_d", layer_norm_eps: float = 1e-6
    ) -> None:
        super().__init__()
        D = shape.d_model
        self.source_embedding_VD = nn.Parameter(torch.zeros(shape.n_source_words, D))
        self.target_embedding_VD = nn.Parameter(torch.zeros(shape.n_target_words, D))
        self.encoder_self = Attention(shape)
        self.decoder_self = Attention(shape)
        self.cross = Attention(shape, CROSS_PATTERNS)
        self.encoder_ffn = FeedForward(shape)
        self.decoder_ffn = FeedForward(shape)
        norms = ("encoder_self", "encoder_ffn", "encoder_end", "decoder_self", "cross", "decoder_ffn", "decoder_end")
        convention = shape.eps_inside_root
        self.norms = nn.ModuleDict({name: LayerNorm(D, None, eps_inside_root=convention) for name in norms})
        self.word_weight_DV = nn.Parameter(torch.zeros(D, shape.n_target_words))
        self.word_bias_V = nn.Parameter(torch.zeros(shape.n_target_words))
        eps = torch.tensor(layer_norm_eps, dtype=torch.float64)
        scale = logit_scale(attention_scale, shape.value_width if shape.qk == "merged" else shape.key_width)
        for name, value in {"position_PD": sinusoids(shape.longest, D), "layer_norm_eps": eps, **scale}.items():
            self.register_buffer(name, value)
        self.dropout = nn.Dropout(shape.dropout) if shape.dropout else nn.Identity()
        self.shape = shape

    def forward(self, source_BS: Tensor, target_BT: Tensor, sights: Sights) -> Tensor:
        """The logits, (B, T, V), of the word after each target word; these start with SOS."""
        x_RD, _ = self._attended(source_BS, target_BT, sights)
        x_RD = x_RD + self.dropout(self.decoder_ffn(self._normal("decoder_ffn", x_RD)))
        logit_RV = torch.addmm(self.word_bias_V, self._normal("decoder_end", x_RD), self.word_weight_DV)
        return logit_RV.view(*target_BT.shape, -1)

    def attention(self, source_BS: Tensor, target_BT: Tensor, sights: Sights) -> dict[str, Tensor]:
        """The weights, (B, H, Q, K), by layer of `LAYERS`."""
        return self._attended(source_BS, target_BT, sights)[1]

    def _attended(self, source_BS: Tensor, target_BT: Tensor, sights: Sights) -> tuple[Tensor, dict[str, Tensor]]:
        x_RD = self._embedded(source_BS, self.source_embedding_VD)
        normal_RD = self._normal("encoder_self", x_RD)
        added_RD, encoder_weight = self._attention_of("encoder_self", normal_RD, normal_RD, sights)
        x_RD = x_RD + added_RD
        x_RD = x_RD + self.dropout(self.encoder_ffn(self._normal("encoder_ffn", x_RD)))
        memory_RD = self._normal("encoder_end", x_RD)
        x_RD = self._embedded(target_BT, self.target_embedding_VD)
        normal_RD = self._normal("decoder_self", x_RD)
        added_RD, self_weight = self._attention_of("decoder_self", normal_RD, normal_RD, sights)
        x_RD = x_RD + added_RD
        added_RD, cross_weight = self._attention_of("cross", self._normal("cross", x_RD), memory_RD, sights)
        return x_RD + added_RD, {"encoder_self": encoder_weight, "decoder_self": self_weight, "cross": cross_weight}

    def _attention_of(self, name: str, asking_RD: Tensor, asked_RD: Tensor, sights: Sights) -> tuple[Tensor, Tensor]:
        factor_BQ = logit_factor(self.scale, self.has_log_n, sights[name].log_n_BQ)
        added_RD, weight = getattr(self, name)(asking_RD, asked_RD, sights[name], factor_BQ)
        return self.dropout(added_RD), weight

    def _embedded(self, tokens_BT: Tensor, words_VD: Tensor) -> Tensor:
        D = words_VD.shape[1]
        x_BTD = embedding(tokens_BT, words_VD) * math.sqrt(D) + self.position_PD[: tokens_BT.shape[1]]
        dropped_RD: Tensor = self.dropout(x_BTD.view(-1, D))
        return dropped_RD

    def _normal(self, norm: str, x_RD: Tensor) -> Tensor:
        normal_RD: Tensor = self.norms[norm](x_RD, self.layer_norm_eps)
        return normal_RD
