"""A post-norm transformer encoder that accepts or rejects a string by its output at CLS, the token before the string.

Axes of one training: B string, T token (CLS first), R = B T row, Q query token (T, or CLS alone), F feature of a token
(symbols, then position features), S symbol, P position feature, D model, E = 3 D queries, keys and values, H head, K =
D / H channel of a head, W feed-forward.

Two shortcuts are exact: one token may stand for several identical ones, with log(count) added to its logits, and the
last layer computes only the query of CLS. Source: Vaswani et al. 2017, as `torch.nn.TransformerEncoderLayer`; Chiang &
Cholak 2022, section 2.
"""

import math
import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnsweep.workloads.attention.attention import ATTENTION_SCALES, attended, logit_scale
from attnsweep.workloads.engine.initialization import StartingLaw
from attnsweep.workloads.engine.plain_forms import fused_layer_norm, inverse_root
from attnsweep.workloads.engine.streams import Streams
from attnsweep.workloads.formal_languages.language import N_SYMBOLS, Tokens

ENCODER_SCALES = (*ATTENTION_SCALES, "log_n_query_inv_sqrt_d")
"""In the authors' code, `log_n_query_inv_sqrt_d`, log(n) multiplies a layer's input before it is projected to queries,
so it does not multiply their bias. Without bias this equals `log_n_inv_sqrt_d`, the paper's. For a string w both take n
= |w| + 1: they count CLS."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderShape:
    n_layers: int
    n_heads: int
    d_model: int
    d_ffn: int
    n_position_features: int
    has_layer_norm: bool = True


@dataclass(frozen=True, slots=True)
class _Setting:
    """What one forward pass computes for all layers: factors of the projections and of their biases (the attention
    scale for queries, 1 for keys and values), 1 / sqrt(layer_norm_eps), and what counts add to the logits."""

    weight_factor_E: Tensor
    bias_factor_E: Tensor
    inverse_root_eps: Tensor
    log_count_B11T: Tensor


class EncoderLayer(nn.Module):
    """c = LN(Att(a) + a), a' = LN(FFN(c) + c), where FFN(c) = W_2 relu(W_1 c + b_1) + b_2; LN is left out without
    `has_layer_norm`."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        D, W = shape.d_model, shape.d_ffn
        self.in_weight_DE = nn.Parameter(torch.zeros(D, 3 * D))
        self.in_bias_E = nn.Parameter(torch.zeros(3 * D))
        self.out_weight_DD = nn.Parameter(torch.zeros(D, D))
        self.out_bias_D = nn.Parameter(torch.zeros(D))
        self.first_weight_DW = nn.Parameter(torch.zeros(D, W))
        self.first_bias_W = nn.Parameter(torch.zeros(W))
        self.second_weight_WD = nn.Parameter(torch.zeros(W, D))
        self.second_bias_D = nn.Parameter(torch.zeros(D))
        self.has_layer_norm = shape.has_layer_norm
        if shape.has_layer_norm:
            self.attended_gain_D = nn.Parameter(torch.ones(D))
            self.attended_bias_D = nn.Parameter(torch.zeros(D))
            self.output_gain_D = nn.Parameter(torch.ones(D))
            self.output_bias_D = nn.Parameter(torch.zeros(D))
        self._n_heads = shape.n_heads

    def forward(self, a_RD: Tensor, setting: _Setting, *, cls_only: bool) -> tuple[Tensor, Tensor]:
        """The output, (R, D), or with `cls_only` at CLS alone, (B, D); and the CLS query's weights, (B, H, T)."""
        mixed_BQD, weight_BHQT = self._attend(a_RD, setting, cls_only=cls_only)
        residual = a_RD.view(mixed_BQD.shape[0], -1, a_RD.shape[1])[:, 0] if cls_only else a_RD
        c = mixed_BQD.flatten(0, 1) @ self.out_weight_DD + self.out_bias_D + residual
        if self.has_layer_norm:
            c = fused_layer_norm(c, self.attended_gain_D, self.attended_bias_D, setting.inverse_root_eps)
        hidden = torch.relu(c @ self.first_weight_DW + self.first_bias_W)
        output = hidden @ self.second_weight_WD + self.second_bias_D + c
        if self.has_layer_norm:
            output = fused_layer_norm(output, self.output_gain_D, self.output_bias_D, setting.inverse_root_eps)
        return output, weight_BHQT[:, :, 0]

    def _attend(self, a_RD: Tensor, setting: _Setting, *, cls_only: bool) -> tuple[Tensor, Tensor]:
        """Mixed values, (B, Q, D), and weights, (B, H, Q, T)."""
        B, T = setting.log_count_B11T.shape[0], setting.log_count_B11T.shape[3]
        bias_E = self.in_bias_E * setting.bias_factor_E
        projected_RE = torch.addcmul(bias_E, a_RD @ self.in_weight_DE, setting.weight_factor_E)
        by_head = projected_RE.view(B, T, 3, self._n_heads, -1).permute(2, 0, 3, 1, 4)
        query_BHQK, key_BHTK, value_BHTK = by_head.unbind()
        if cls_only:
            query_BHQK = query_BHQK[:, :, :1]
        return attended(query_BHQK, key_BHTK, value_BHTK, setting.log_count_B11T)


class Encoder(nn.Module):
    """Reads CLS and a string, and computes one logit: accept or reject.

    Attributes:
        position_PD: The embeddings of position features, not trained: feature p is dimension p.
        layer_norm_eps: Added to the variance, inside the root.
        scale_E, weight_log_n_E, bias_log_n_E: Queries are scale (W_Q a + b_Q), in which log n multiplies the term of
            the weight or of the bias where these are true. Keys and values have 1, false and false.
    """

    position_PD: Tensor
    layer_norm_eps: Tensor
    scale_E: Tensor
    weight_log_n_E: Tensor
    bias_log_n_E: Tensor

    def __init__(self, shape: EncoderShape, attention_scale: str = "inv_sqrt_d", layer_norm_eps: float = 1e-5) -> None:
        super().__init__()
        D = shape.d_model
        self.symbol_SD = nn.Parameter(torch.zeros(N_SYMBOLS, D))
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(shape.n_layers))
        self.answer_weight_D1 = nn.Parameter(torch.zeros(D, 1))
        self.answer_bias_1 = nn.Parameter(torch.zeros(1))
        built = logit_scale(attention_scale, D // shape.n_heads)
        weight_has_log_n = attention_scale.startswith("log_n")
        bias_has_log_n = bool(built["has_log_n"])
        for name, value in (
            ("position_PD", torch.eye(shape.n_position_features, D)),
            ("layer_norm_eps", torch.tensor(layer_norm_eps, dtype=torch.float64)),
            ("scale_E", torch.tensor([float(built["scale"])] * D + [1.0] * (2 * D), dtype=torch.float64)),
            ("weight_log_n_E", torch.tensor([weight_has_log_n] * D + [False] * (2 * D))),
            ("bias_log_n_E", torch.tensor([bias_has_log_n] * D + [False] * (2 * D))),
        ):
            self.register_buffer(name, value)
        self.shape = shape

    def forward(self, tokens: Tokens) -> Tensor:
        """The logit of each string, (B,), positive if the encoder accepts it."""
        return self.trace(tokens)[0]

    def trace(self, tokens: Tokens) -> tuple[Tensor, list[Tensor]]:
        """The logits, (B,), and the CLS query's weights by layer, (B, H, T)."""
        setting = _Setting(
            weight_factor_E=self.scale_E * torch.where(self.weight_log_n_E, tokens.log_n, 1.0),
            bias_factor_E=self.scale_E * torch.where(self.bias_log_n_E, tokens.log_n, 1.0),
            inverse_root_eps=inverse_root(self.layer_norm_eps),
            log_count_B11T=tokens.log_count_BT[:, None, None],
        )
        a_RD = tokens.feature_BTF.flatten(0, 1) @ torch.cat([self.symbol_SD, self.position_PD])
        attention = []
        for index, layer in enumerate(self.layers):
            a_RD, weight_BHT = layer(a_RD, setting, cls_only=index == self.shape.n_layers - 1)
            attention.append(weight_BHT)
        return (a_RD @ self.answer_weight_D1 + self.answer_bias_1)[:, 0], attention


def torchs_law(shape: EncoderShape, streams: Streams) -> StartingLaw:
    """Draws initial parameters like PyTorch's modules.

    Embeddings are N(0, 1). Queries, keys and values are Xavier-uniform as one matrix; all biases of attention are 0, as
    in `nn.MultiheadAttention`. Other matrices and biases are uniform on +-1/sqrt(fan_in). LayerNorm has gains 1 and
    biases 0. All layers of a training start alike, because `nn.TransformerEncoder` copies one layer.
    """
    D, W = shape.d_model, shape.d_ffn
    bounds = {
        "in_weight_DE": math.sqrt(6.0 / (3 * D + D)),
        "out_weight_DD": D**-0.5,
        "first_weight_DW": D**-0.5,
        "first_bias_W": D**-0.5,
        "second_weight_WD": W**-0.5,
        "second_bias_D": W**-0.5,
        "answer_weight_D1": D**-0.5,
        "answer_bias_1": D**-0.5,
    }

    def law(name: str, shape: tuple[int, ...]) -> Tensor | None:
        stream, own_name = f"init/{re.sub(r'^layers[.][0-9]+[.]', 'layers.', name)}", name.rpartition(".")[2]
        if own_name == "symbol_SD":
            return streams.normal(stream, shape)
        return bounds[own_name] * (2.0 * streams.uniform(stream, shape) - 1.0) if own_name in bounds else None

    return law
