"""Encoders that decide FIRST (does a string start with 1?) and PARITY (is its number of 1s odd?) with weights set by
hand, and ways to add LayerNorm to them.

Letters: i is a token's position, n the number of positions, w_1 the first symbol of the string, k its number of 1s, c
the strength of attention (times log n if the scale has that factor), s the answer, and I[...] is 1 if the condition
holds, else 0. Dimensions 0, 1, 2 of a token: the symbol (0, 1, CLS). For FIRST, 3: I[i = 1], 4: I[i = 1 and w_1 = 1],
5: s. For PARITY, 3: i/n, 4: cos(i pi), 5: k/n, 6: 1/n, 7: I[i = k]/n, 8: s; 9 is unused and makes the width divisible
by two heads.
Axes: S symbol, P position feature, D model, H head, K channel of a head, W feed-forward; 2D: [x, -x].
Source: Chiang & Cholak 2022, sections 3.1, 3.2 and 5.2.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from attnsweep.workloads.formal_languages.encoder import Encoder, EncoderLayer, EncoderShape
from attnsweep.workloads.formal_languages.language import N_SYMBOLS

Entries = Mapping[tuple[int, int], float]
"""The nonzero entries of a matrix, by (input dimension, output dimension)."""


def blank_encoder(
    n_layers: int, n_heads: int, d_model: int, d_ffn: int, position_dimensions: Sequence[int], attention_scale: str
) -> Encoder:
    """Without LayerNorm, all weights 0, in float64. Symbols are embedded in dimensions 0 to 2."""
    shape = EncoderShape(
        n_layers=n_layers,
        n_heads=n_heads,
        d_model=d_model,
        d_ffn=d_ffn,
        n_position_features=len(position_dimensions),
        has_layer_norm=False,
    )
    encoder = Encoder(shape, attention_scale).double()
    encoder.symbol_SD.data = torch.eye(N_SYMBOLS, d_model, dtype=torch.float64)
    encoder.position_PD = torch.eye(d_model, dtype=torch.float64)[list(position_dimensions)]
    return encoder


def set_attention(
    encoder: Encoder,
    layer: int,
    head: int,
    *,
    query: Mapping[int, float],
    key: Mapping[int, float],
    values: Mapping[int, Mapping[int, float]],
) -> None:
    """Token i with activations a_i gives token j the logit (query . a_i) (key . a_j), times log n if the attention
    scale has that factor.

    Args:
        query, key: Weights by input dimension.
        values: For each output dimension, the weights by input dimension.
    """
    shape, weights = encoder.shape, _layer(encoder, layer)
    d_head = shape.d_model // shape.n_heads
    in_weight_D3HK = weights.in_weight_DE.data.view(shape.d_model, 3, shape.n_heads, d_head)
    out_weight_HKD = weights.out_weight_DD.data.view(shape.n_heads, d_head, shape.d_model)
    for dimension, weight in query.items():
        in_weight_D3HK[dimension, 0, head, 0] = weight / encoder.scale_E[0]
    for dimension, weight in key.items():
        in_weight_D3HK[dimension, 1, head, 0] = weight
    for channel, (written, read) in enumerate(values.items()):
        out_weight_HKD[head, channel, written] = 1.0
        for dimension, weight in read.items():
            in_weight_D3HK[dimension, 2, head, channel] = weight


def set_feed_forward(encoder: Encoder, layer: int, first: Entries, second: Entries) -> None:
    """The biases stay 0."""
    for matrix, entries in (
        (_layer(encoder, layer).first_weight_DW, first),
        (_layer(encoder, layer).second_weight_WD, second),
    ):
        for place, weight in entries.items():
            matrix.data[place] = weight


def with_layer_norm(plain: Encoder, layer_norm_eps: float) -> Encoder:
    """An encoder with LayerNorm whose answers have the signs of `plain`'s, which has none.

    It stores each activation x beside -x, so that LayerNorm subtracts a mean of 0 and only multiplies each token by a
    positive number. Without biases, all signs stay. The last feed-forward part, which must be 0 in `plain`, erases all
    but the answer, so that the last LayerNorm makes it large. Source: Chiang & Cholak 2022, section 4.3.
    """
    encoder = _carried_twice(plain, layer_norm_eps, plain.shape.n_layers)
    _erase_all_but_the_answer(encoder, plain.shape.n_layers - 1)
    return encoder


def with_extra_layer(plain: Encoder, layer_norm_eps: float, cross_entropy_bits: float) -> Encoder:
    """With LayerNorm, and with one more layer, which erases all but the answer.

    At epsilon 0 its logit is +l or -l at every length, where l gives the cross-entropy `cross_entropy_bits`. Source:
    Chiang & Cholak 2022, proposition 2.
    """
    encoder = _carried_twice(plain, layer_norm_eps, plain.shape.n_layers + 1)
    _erase_all_but_the_answer(encoder, plain.shape.n_layers)
    # Of what LayerNorm normalizes only two entries are nonzero, +s and -s. At width D they become +-sqrt(D / 2).
    wanted = -math.log(math.expm1(cross_entropy_bits * math.log(2.0)))
    encoder.answer_weight_D1.data *= wanted / math.sqrt(encoder.shape.d_model / 2.0)
    return encoder


def _carried_twice(plain: Encoder, layer_norm_eps: float, n_layers: int) -> Encoder:
    D, H, W = plain.shape.d_model, plain.shape.n_heads, plain.shape.d_ffn
    K = D // H
    shape = EncoderShape(
        n_layers=n_layers,
        n_heads=H,
        d_model=2 * D,
        d_ffn=max(W, 2 * D),
        n_position_features=plain.shape.n_position_features,
    )
    encoder = Encoder(shape, layer_norm_eps=layer_norm_eps).double()
    encoder.weight_log_n_E = plain.weight_log_n_E.repeat_interleave(2)
    encoder.bias_log_n_E = plain.bias_log_n_E.repeat_interleave(2)
    encoder.symbol_SD.data = _opposed(plain.symbol_SD.data)
    encoder.position_PD = _opposed(plain.position_PD)
    encoder.answer_weight_D1.data[:D] = plain.answer_weight_D1.data
    same_scale = plain.scale_E[0] / encoder.scale_E[0]
    for index in range(plain.shape.n_layers):
        old, new = _layer(plain, index), _layer(encoder, index)
        in_weight_D3HK = new.in_weight_DE.data.view(2 * D, 3, H, 2 * K)
        in_weight_D3HK[:D, :, :, :K] = old.in_weight_DE.data.view(D, 3, H, K)
        in_weight_D3HK[:, 0] *= same_scale
        new.out_weight_DD.data.view(H, 2 * K, 2 * D)[:, :K] = _opposed(old.out_weight_DD.data).view(H, K, 2 * D)
        new.first_weight_DW.data[:D, :W] = old.first_weight_DW.data
        new.second_weight_WD.data[:W] = _opposed(old.second_weight_WD.data)
    return encoder


def _erase_all_but_the_answer(encoder: Encoder, layer: int) -> None:
    weights, half = _layer(encoder, layer), encoder.shape.d_model // 2
    assert not weights.second_weight_WD.any()
    erased = torch.eye(half, dtype=torch.float64)
    erased[encoder.answer_weight_D1.data[:half, 0] != 0] = 0.0
    weights.first_weight_DW.data[:, : 2 * half] = torch.eye(2 * half, dtype=torch.float64)
    weights.second_weight_WD.data[: 2 * half] = torch.cat([-_opposed(erased), _opposed(erased)])


def _opposed(matrix: Tensor) -> Tensor:
    """[x, -x] along the last axis."""
    return torch.cat([matrix, -matrix], dim=-1)


def _layer(encoder: Encoder, index: int) -> EncoderLayer:
    layer = encoder.layers[index]
    assert isinstance(layer, EncoderLayer)
    return layer


_ZERO, _ONE, _CLS, _FIRST, _FIRST_IS_ONE, _FIRST_ANSWER = range(6)
_FIRST_FEATURES = (_FIRST,)


def exact_first(strength: float = 1.0, attention_scale: str = "inv_sqrt_d") -> Encoder:
    """Layer 1 marks a 1 at position 1, and layer 2 lets CLS read it: s = e^c / (e^c + n - 1) (I[w_1 = 1] - 1/2)."""
    encoder = blank_encoder(2, 1, 6, 1, _FIRST_FEATURES, attention_scale)
    set_feed_forward(encoder, 0, {(_ZERO, 0): -1.0, (_CLS, 0): -1.0, (_FIRST, 0): 1.0}, {(0, _FIRST_IS_ONE): 1.0})
    values = {_FIRST_IS_ONE: 1.0, _FIRST: -0.5}
    set_attention(encoder, 1, 0, query={_CLS: strength}, key={_FIRST: 1.0}, values={_FIRST_ANSWER: values})
    encoder.answer_weight_D1.data[_FIRST_ANSWER] = 1.0
    return encoder


def flawed_first(strength: float = 1.0, attention_scale: str = "inv_sqrt_d") -> Encoder:
    """One layer, wrong for some long strings: CLS attends most to position 1, but all others have more weight in sum.

    s = (e^c - 1) / (e^c + n - 1) (I[w_1 = 1] - 1/2) + (k - n/2) / (e^c + n - 1).
    """
    encoder = blank_encoder(1, 1, 6, 1, _FIRST_FEATURES, attention_scale)
    values = {_ZERO: -0.5, _ONE: 0.5, _CLS: -0.5}
    set_attention(encoder, 0, 0, query={_CLS: strength}, key={_FIRST: 1.0}, values={_FIRST_ANSWER: values})
    encoder.answer_weight_D1.data[_FIRST_ANSWER] = 1.0
    return encoder


_ZERO, _ONE, _CLS, _POSITION, _COSINE, _ONES, _UNIT, _IS_COUNT, _PARITY_ANSWER = range(9)


def exact_parity(strength: float = 1.0, attention_scale: str = "inv_sqrt_d", counting: float = 1.0) -> Encoder:
    """Layer 1 marks position k, and layer 2 tells CLS whether that position is odd.

    In layer 1 all tokens attend uniformly, and the feed-forward part computes
    I[i = k]/n = (relu(k-i-1) - 2 relu(k-i) + relu(k-i+1)) / n. In layer 2 CLS attends to odd positions with one head
    and to even positions with the other. For even n, s = (-1)^(k+1) 2 tanh(c) / n^2. For odd n, with Z1 = (n-1)/2 e^c +
    (n+1)/2 e^-c and Z2 = (n+1)/2 e^c + (n-1)/2 e^-c, s = -(n-1) sinh(2c) / (n Z1 Z2) for even k and +(n+1) sinh(2c) /
    (n Z1 Z2) for odd k; the appendix misprints the last sinh as cosh.

    Args:
        counting: The weight with which layer 1 counts, entry (6, 2) of W_V of head 1; 1 is right (figure 3).
    """
    encoder = blank_encoder(2, 2, 10, 3, (_POSITION, _COSINE), attention_scale)
    set_attention(encoder, 0, 0, query={}, key={}, values={_ONES: {_ONE: counting}, _UNIT: {_CLS: 1.0}})
    first = {(_ONES, unit): 1.0 for unit in range(3)} | {(_POSITION, unit): -1.0 for unit in range(3)}
    first |= {(_UNIT, 0): -1.0, (_UNIT, 2): 1.0}
    set_feed_forward(encoder, 0, first, {(unit, _IS_COUNT): weight for unit, weight in enumerate((1.0, -2.0, 1.0))})
    for head, sign in enumerate((1.0, -1.0)):
        values = {_PARITY_ANSWER: {_IS_COUNT: sign}}
        set_attention(encoder, 1, head, query={_CLS: strength}, key={_COSINE: -sign}, values=values)
    encoder.answer_weight_D1.data[_PARITY_ANSWER] = 1.0
    return encoder
