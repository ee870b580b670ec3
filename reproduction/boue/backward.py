"""The gradients of a GPT's loss by hand-written formulas, layer by layer from the logits down.

Given D = dL/dy, the gradient with respect to a layer's output y, each function returns dL/d(parameter) by name and
dL/d(input). Axes: those of `Transformer`, C and E channels of a head. Source: Boue 2025, "Deep learning for
pedestrians: backpropagation in Transformers", Table 3, with the causal mask as minus infinity, and with corrected
formulas for LoRA on the logits.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from attnsweep.reproduction.boue.low_rank import LowRankLinear
from attnsweep.workloads.attention.attention import Attention, Sight, by_head, logit_factor, side_by_side
from attnsweep.workloads.attention.layers import FeedForward, LayerNorm, Linear
from attnsweep.workloads.attention.transformer import TransformerBlock
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.gpt.model import GPT

Gradients = dict[str, Tensor]
"""By parameter name."""


def gradients_by_hand(model: GPT, batch: Batch) -> Gradients:
    """Of the weighted cross-entropy, in float64; `batch` has `token`, `target` and `weight`, (B, T)."""
    token_BT, V = batch["token"], model.shape.n_words
    x_BTD = model.embedded(token_BT)
    sight = model.sight(x_BTD)
    streams = [x_BTD]
    for block in model.blocks:
        streams.append(block(streams[-1], sight)[0])
    gradients, D_BTD = _head(model, streams[-1], batch)
    for index in reversed(range(len(model.blocks))):
        block = cast(TransformerBlock, model.blocks[index])
        block_gradients, D_BTD = _block(block, streams[index], sight, D_BTD)
        gradients |= _under(f"blocks.{index}", block_gradients)
    token_VD = one_hot(token_BT, V).to(D_BTD.dtype).flatten(0, 1).T @ D_BTD.flatten(0, 1)
    gradients["token.weight"] = gradients.get("token.weight", 0.0) + token_VD
    if model.position is not None:
        gradients["position.weight"] = torch.zeros_like(model.position.weight)
        gradients["position.weight"][: token_BT.shape[1]] = D_BTD.sum(0)
    return {name: gradients[name] for name, _ in model.named_parameters()}


def _head(model: GPT, x_BTD: Tensor, batch: Batch) -> tuple[Gradients, Tensor]:
    y_BTD, V = model.last_norm(x_BTD), model.shape.n_words
    D_BTV = torch.softmax(model.logits(x_BTD), -1) - one_hot(batch["target"], V)
    D_BTV = D_BTV * batch["weight"].unsqueeze(-1)
    if model.head is None:
        gradients = {"token.weight": D_BTV.flatten(0, 1).T @ y_BTD.flatten(0, 1)}
        D_BTD = D_BTV @ model.token.weight
    else:
        head, D_BTD = linear(model.head, y_BTD, D_BTV)
        gradients = _under("head", head)
    last_norm, D_BTD = layer_norm(model.last_norm, x_BTD, D_BTD)
    return gradients | _under("last_norm", last_norm), D_BTD


def _block(block: TransformerBlock, x_BTD: Tensor, sight: Sight, D_BTD: Tensor) -> tuple[Gradients, Tensor]:
    normal_BTD = block.attention_norm(x_BTD)
    middle_BTD = x_BTD + block.attention(normal_BTD, sight)[0]
    ffn, below_BTD = _feed_forward(block.ffn, block.ffn_norm(middle_BTD), D_BTD)
    ffn_norm, below_BTD = layer_norm(block.ffn_norm, middle_BTD, below_BTD)
    D_BTD = D_BTD + below_BTD
    attention_layer, below_BTD = attention(block.attention, normal_BTD, sight, D_BTD)
    attention_norm, below_BTD = layer_norm(block.attention_norm, x_BTD, below_BTD)
    gradients = {
        **_under("ffn", ffn),
        **_under("ffn_norm", ffn_norm),
        **_under("attention", attention_layer),
        **_under("attention_norm", attention_norm),
    }
    return gradients, D_BTD + below_BTD


def linear(layer: nn.Module, x: Tensor, D: Tensor) -> tuple[Gradients, Tensor]:
    """For y = x w^t + b: dL/dw = D^t x, dL/db = sum D, dL/dx = D w; also of a low-rank update, if there is one."""
    assert isinstance(layer, Linear)
    rows, D_rows = x.flatten(0, -2), D.flatten(0, -2)
    gradients, below = {"weight": D_rows.T @ rows, "bias": D_rows.sum(0)}, D @ layer.weight
    if isinstance(layer, LowRankLinear):
        A, B, s = layer.down.weight, layer.up.weight, layer.scale
        gradients |= {"down.weight": s * (D_rows @ B).T @ rows, "up.weight": s * D_rows.T @ (rows @ A.T)}
        below = below + s * D @ B @ A
    return gradients, below


def layer_norm(layer: LayerNorm, x: Tensor, D: Tensor) -> tuple[Gradients, Tensor]:
    """Equation 40 of Boue 2025, exact for any epsilon added to the variance."""
    centred = x - x.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + layer.layer_norm_eps).sqrt()
    normal = centred / deviation
    e = D * layer.gain_D
    below = (e - e.mean(-1, keepdim=True) - normal * (normal * e).mean(-1, keepdim=True)) / deviation
    return {"gain_D": (normal * D).flatten(0, -2).sum(0), "bias_D": D.flatten(0, -2).sum(0)}, below


def _feed_forward(ffn: FeedForward, x: Tensor, D: Tensor) -> tuple[Gradients, Tensor]:
    hidden = ffn.first(x)
    second, below = linear(ffn.second, ffn.activated(hidden), D)
    first, below = linear(ffn.first, x, below * _SLOPES[ffn.activation](hidden))
    return {**_under("first", first), **_under("second", second)}, below


def attention(layer: Attention, x_BTD: Tensor, sight: Sight, D_BTD: Tensor) -> tuple[Gradients, Tensor]:
    """Equations 24-33 of Boue 2025."""
    key_BHTC, value_BHTE = layer.keys(x_BTD), layer.values(x_BTD)
    weight_BHTT = layer.attend(x_BTD, key_BHTC, value_BHTE, sight)[1]
    factor_BT1 = logit_factor(layer.scale, layer.has_log_n, sight.log_n_BQ).unsqueeze(-1)
    out, D_mixed_BTD = linear(layer.out, side_by_side(weight_BHTT @ value_BHTE), D_BTD)
    D_o_BHTE = by_head(D_mixed_BTD, layer.n_heads)
    M_BHTT = D_o_BHTE @ value_BHTE.mT
    D_z_BHTT = weight_BHTT * (M_BHTT - (M_BHTT * weight_BHTT).sum(-1, keepdim=True))
    query_BHTC = by_head(layer.query(x_BTD) * factor_BT1, layer.n_heads)
    D_key_BHTC = D_z_BHTT.mT @ query_BHTC
    query, below_BTD = linear(layer.query, x_BTD, side_by_side(D_z_BHTT @ key_BHTC) * factor_BT1)
    value, value_below_BTD = linear(layer.value, x_BTD, side_by_side(weight_BHTT.mT @ D_o_BHTE))
    gradients = {**_under("out", out), **_under("query", query), **_under("value", value)}
    below_BTD = below_BTD + value_below_BTD
    if layer.key is None:
        return gradients, below_BTD + D_key_BHTC.sum(1)
    key, key_below_BTD = linear(layer.key, x_BTD, side_by_side(D_key_BHTC))
    # Equation 32b: the key's bias adds the same number to all logits of a query, which changes no softmax.
    key["bias"] = torch.zeros_like(key["bias"])
    return gradients | _under("key", key), below_BTD + key_below_BTD


def _under(prefix: str, gradients: Gradients) -> Gradients:
    return {f"{prefix}.{name}": value for name, value in gradients.items()}


def _relu_slope(x: Tensor) -> Tensor:
    return (x > 0).to(x.dtype)


def _gelu_slope(x: Tensor) -> Tensor:
    return 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))) + x * torch.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _gelu_tanh_slope(x: Tensor) -> Tensor:
    root = math.sqrt(2.0 / math.pi)
    tanh = torch.tanh(root * (x + 0.044715 * x**3))
    return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh**2) * root * (1.0 + 3.0 * 0.044715 * x**2)


_SLOPES = {"relu": _relu_slope, "gelu": _gelu_slope, "gelu_tanh": _gelu_tanh_slope}
