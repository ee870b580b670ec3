"""The gradients of a GPT's loss by hand, layer by layer from the logits down: a check of autograd, not a way to train.

With D = dL/dy of a layer's output y, each function returns dL/d(parameter) and dL/d(input). Axes: see `model`; ... any.
Source: Boue 2025, "Deep learning for pedestrians: backpropagation in Transformers", Table 3, with the causal mask as
minus infinity; its formulas for LoRA on the logits are corrected.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from attnsweep.workloads.attention.attention import Attention
from attnsweep.workloads.attention.block import TransformerBlock
from attnsweep.workloads.attention.layers import FeedForward, LayerNorm, Linear, LowRankLinear
from attnsweep.workloads.attention.sight import Sight
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.gpt.model import GPT

Gradients = dict[str, Tensor]
"""By parameter name."""


def gradients_by_hand(model: GPT, batch: Batch) -> Gradients:
    """The gradients of the weighted cross-entropy, of all parameters of a module in float64.

    Args:
        model: Of one training.
        batch: `token`, `target` and `weight`, (B, T).
    """
    token_BT, V = batch["token"], model.shape.n_words
    x_BTD = model.embedded(token_BT)
    sight = Sight.causal(x_BTD) if model.shape.is_causal else Sight.everything(x_BTD)
    streams = [x_BTD]
    for block in model.blocks:
        streams.append(block(streams[-1], sight)[0])
    found, D_BTD = _head(model, streams[-1], batch)
    for index in reversed(range(len(model.blocks))):
        block = cast(TransformerBlock, model.blocks[index])
        of_block, D_BTD = _block(block, streams[index], sight, D_BTD)
        found |= _under(f"blocks.{index}", of_block)
    of_token_VD = one_hot(token_BT, V).to(D_BTD.dtype).flatten(0, 1).T @ D_BTD.flatten(0, 1)
    found["token.weight"] = found.get("token.weight", 0.0) + of_token_VD
    if model.position is not None:
        found["position"] = torch.zeros_like(model.position)
        found["position"][: token_BT.shape[1]] = D_BTD.sum(0)
    return {name: found[name] for name, _ in model.named_parameters()}


def _head(model: GPT, x_BTD: Tensor, batch: Batch) -> tuple[Gradients, Tensor]:
    """Cross-entropy with softmax, the last layer, and the normalization before it."""
    y_BTD, V = model.last_norm(x_BTD), model.shape.n_words
    D_BTV = torch.softmax(model.logits(x_BTD), -1) - one_hot(batch["target"], V)
    D_BTV = D_BTV * batch["weight"].unsqueeze(-1)
    if model.head is None:
        found = {"token.weight": D_BTV.flatten(0, 1).T @ y_BTD.flatten(0, 1)}
        D_BTD = D_BTV @ model.token.weight
    else:
        of_head, D_BTD = linear(cast(Linear, model.head), y_BTD, D_BTV)
        found = _under("head", of_head)
    of_norm, D_BTD = layer_norm(model.last_norm, x_BTD, D_BTD)
    return found | _under("last_norm", of_norm), D_BTD


def _block(block: TransformerBlock, x_BTD: Tensor, sight: Sight, D_BTD: Tensor) -> tuple[Gradients, Tensor]:
    normal_BTD = block.attention_norm(x_BTD)
    middle_BTD = x_BTD + block.attention(normal_BTD, sight)[0]
    of_ffn, below_BTD = _feed_forward(block.ffn, block.ffn_norm(middle_BTD), D_BTD)
    of_ffn_norm, below_BTD = layer_norm(block.ffn_norm, middle_BTD, below_BTD)
    D_BTD = D_BTD + below_BTD
    of_attention, below_BTD = attention(block.attention, normal_BTD, sight, D_BTD)
    of_attention_norm, below_BTD = layer_norm(block.attention_norm, x_BTD, below_BTD)
    found = {
        **_under("ffn", of_ffn),
        **_under("ffn_norm", of_ffn_norm),
        **_under("attention", of_attention),
        **_under("attention_norm", of_attention_norm),
    }
    return found, D_BTD + below_BTD


def linear(layer: nn.Module, x: Tensor, D: Tensor) -> tuple[Gradients, Tensor]:
    """y = x w^t + b, and the update of low rank where there is one: dw = D^t x, db = sum D; below, D w."""
    assert isinstance(layer, Linear)
    rows, D_rows = x.flatten(0, -2), D.flatten(0, -2)
    found, below = {"weight": D_rows.T @ rows, "bias": D_rows.sum(0)}, D @ layer.weight
    if isinstance(layer, LowRankLinear):
        A, B, s = layer.down.weight, layer.up.weight, layer.scale
        found |= {"down.weight": s * (D_rows @ B).T @ rows, "up.weight": s * D_rows.T @ (rows @ A.T)}
        below = below + s * D @ B @ A
    return found, below


def layer_norm(layer: LayerNorm, x: Tensor, D: Tensor) -> tuple[Gradients, Tensor]:
    """Equation 40; exact for every epsilon inside the root."""
    centred = x - x.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + layer.layer_norm_eps).sqrt()
    normal = centred / deviation
    e = D * layer.gain_D
    below = (e - e.mean(-1, keepdim=True) - normal * (normal * e).mean(-1, keepdim=True)) / deviation
    return {"gain_D": (normal * D).flatten(0, -2).sum(0), "bias_D": D.flatten(0, -2).sum(0)}, below


def _feed_forward(ffn: FeedForward, x: Tensor, D: Tensor) -> tuple[Gradients, Tensor]:
    hidden = ffn.first(x)
    of_second, below = linear(ffn.second, ffn.activated(hidden), D)
    of_first, below = linear(ffn.first, x, below * _SLOPES[ffn.activation](hidden))
    return {**_under("first", of_first), **_under("second", of_second)}, below


def attention(layer: Attention, x_BTD: Tensor, sight: Sight, D_BTD: Tensor) -> tuple[Gradients, Tensor]:
    """Equations 24-33: through the values, and through the softmax of each query to queries and keys."""
    key_BHTC, value_BHTE = layer.keys(x_BTD), layer.values(x_BTD)
    weight_BHTT = layer.attend(x_BTD, key_BHTC, value_BHTE, sight)[1]
    factor_BT1 = layer.factor(sight)
    mixed_BTD = (weight_BHTT @ value_BHTE).transpose(1, 2).flatten(2)
    of_out, D_mixed_BTD = linear(layer.out, mixed_BTD, D_BTD)
    D_o_BHTE = D_mixed_BTD.unflatten(-1, (value_BHTE.shape[1], -1)).transpose(1, 2)
    M_BHTT = D_o_BHTE @ value_BHTE.mT
    D_z_BHTT = weight_BHTT * (M_BHTT - (M_BHTT * weight_BHTT).sum(-1, keepdim=True))
    query_BHTC = (layer.query(x_BTD) * factor_BT1).unflatten(-1, (value_BHTE.shape[1], -1)).transpose(1, 2)
    D_key_BHTC = D_z_BHTT.mT @ query_BHTC
    of_query, below_BTD = linear(layer.query, x_BTD, _side_by_side(D_z_BHTT @ key_BHTC) * factor_BT1)
    of_value, of_values = linear(layer.value, x_BTD, _side_by_side(weight_BHTT.mT @ D_o_BHTE))
    found = {**_under("out", of_out), **_under("query", of_query), **_under("value", of_value)}
    below_BTD = below_BTD + of_values
    if layer.key is None:
        return found, below_BTD + D_key_BHTC.sum(1)
    of_key, of_keys = linear(layer.key, x_BTD, _side_by_side(D_key_BHTC))
    # Equation 32b: the logits' gradients of a query sum to 0.
    of_key["bias"] = torch.zeros_like(of_key["bias"])
    return found | _under("key", of_key), below_BTD + of_keys


def _side_by_side(x_BHTC: Tensor) -> Tensor:
    return x_BHTC.transpose(1, 2).flatten(2)


def _under(prefix: str, gradients: Gradients) -> Gradients:
    return {f"{prefix}.{name}": value for name, value in gradients.items()}


def _of_relu(x: Tensor) -> Tensor:
    return (x > 0).to(x.dtype)


def _of_gelu(x: Tensor) -> Tensor:
    """Phi(x) + x phi(x)."""
    return 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0))) + x * torch.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _of_gelu_tanh(x: Tensor) -> Tensor:
    """(1 + tanh u) / 2 + x (1 - tanh^2 u) u' / 2 with u = sqrt(2/pi) (x + 0.044715 x^3)."""
    root = math.sqrt(2.0 / math.pi)
    tanh = torch.tanh(root * (x + 0.044715 * x**3))
    return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh**2) * root * (1.0 + 3.0 * 0.044715 * x**2)


_SLOPES = {"relu": _of_relu, "gelu": _of_gelu, "gelu_tanh": _of_gelu_tanh}
