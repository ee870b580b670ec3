"""Attention in operations that `vmap` supports, and layer norms with an epsilon per training."""

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import dropout


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if enable_gqa:
        n_groups = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(n_groups, -3) for tensor in (key, value))
    logits = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if attn_mask is None:
        weights = functional.softmax(logits, -1)
    else:
        is_boolean = attn_mask.dtype == torch.bool
        logits = logits.masked_fill(~attn_mask, -math.inf) if is_boolean else logits + attn_mask
        # A query that may see no key gets 0, as in PyTorch; a softmax over no keys would give NaN.
        sees_nothing = (logits == -math.inf).all(-1, keepdim=True)
        weights = functional.softmax(logits.masked_fill(sees_nothing, 0.0), -1).masked_fill(sees_nothing, 0.0)
    return (dropout(weights, dropout_p) if dropout_p else weights) @ value


_original: Any = functional.multi_head_attention_forward
multi_head_attention: Any = FunctionType(
    _original.__code__, vars(functional) | {"has_torch_function": lambda _: False}, argdefs=_original.__defaults__
)
"""PyTorch's function without its early dispatch, so that a `TorchFunctionMode` can replace the calls in its body."""
multi_head_attention.__kwdefaults__ = _original.__kwdefaults__


PLAIN_FORMS: dict[object, Callable[..., Any]] = {
    functional.scaled_dot_product_attention: attention,
    functional.multi_head_attention_forward: multi_head_attention,
}


_SMALLEST_EPS = {torch.bfloat16: 1e-24, torch.float32: 1e-24, torch.float64: 1e-60}


def layer_norm(value: Tensor, gain: Tensor, bias: Tensor, layer_norm_eps: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + layer_norm_eps) * gain + bias over the last axis: epsilon inside the root, as in
    `torch.nn.LayerNorm`. Source: Ba, Kiros & Hinton 2016, equation 4."""
    centred = value - value.mean(-1, keepdim=True)
    return centred * inverse_deviation(centred, layer_norm_eps) * gain + bias


def inverse_deviation(centred: Tensor, layer_norm_eps: Tensor, dim: int = -1) -> Tensor:
    """1 / sqrt(variance + layer_norm_eps) along an axis on which the mean is 0, kept with size 1."""
    return torch.rsqrt(centred.square().mean(dim, keepdim=True) + layer_norm_eps)


def inverse_root(layer_norm_eps: Tensor) -> Tensor:
    """1 / sqrt(layer_norm_eps) for `fused_layer_norm`, with a tiny number, far below any variance, in place of 0."""
    return torch.rsqrt(layer_norm_eps.clamp(min=_SMALLEST_EPS[layer_norm_eps.dtype]))


def fused_layer_norm(value: Tensor, gain: Tensor, bias: Tensor, inverse_root_eps: Tensor) -> Tensor:
    """`layer_norm` in three operations, not nine: PyTorch's kernel takes epsilon as a constant, but x with epsilon
    gives the same as x / sqrt(epsilon) with 1. At epsilon 0 a constant vector gives `bias`, not NaN, and variances must
    be far above 1e-24 in single precision, 1e-60 in double."""
    normal = torch.nn.functional.layer_norm(value * inverse_root_eps, value.shape[-1:], eps=1.0)
    return torch.addcmul(bias, normal, gain)


def outside_layer_norm(value: Tensor, gain: Tensor, bias: Tensor, layer_norm_eps: Tensor) -> Tensor:
    """(x - mean) / (std + layer_norm_eps) * gain + bias over the last axis: epsilon outside the root, with
    `torch.std`'s n - 1. At epsilon 0 a constant vector gives NaN. Source: the code of Conti 2024."""
    centred = value - value.mean(-1, keepdim=True)
    return torch.addcmul(bias, centred / (value.std(-1, keepdim=True) + layer_norm_eps), gain)
