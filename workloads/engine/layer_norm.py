"""Layer normalization with one epsilon per training. PyTorch's function takes epsilon only as a Python constant."""

import torch
from torch import Tensor

_SMALLEST_EPS = {torch.bfloat16: 1e-24, torch.float32: 1e-24, torch.float64: 1e-60}


def layer_norm(value: Tensor, gain: Tensor, bias: Tensor, layer_norm_eps: Tensor) -> Tensor:
    """Computes (x - mean) / sqrt(variance + layer_norm_eps) * gain + bias over the last axis: epsilon in the root.

    Source: Ba, Kiros & Hinton 2016, equation 4; the convention of `torch.nn.LayerNorm`.
    """
    centred = value - value.mean(-1, keepdim=True)
    return centred * inverse_deviation(centred, layer_norm_eps) * gain + bias


def inverse_deviation(centred: Tensor, layer_norm_eps: Tensor, dim: int = -1) -> Tensor:
    """Computes 1 / sqrt(variance + layer_norm_eps) over an axis with mean 0, which is kept with size 1."""
    return torch.rsqrt(centred.square().mean(dim, keepdim=True) + layer_norm_eps)


def inverse_root(layer_norm_eps: Tensor) -> Tensor:
    """Computes 1 / sqrt(layer_norm_eps) for `fused_layer_norm`. An epsilon of 0 is replaced by a tiny positive number.

    That number is far below any variance, except for constant vectors.
    """
    return torch.rsqrt(layer_norm_eps.clamp(min=_SMALLEST_EPS[layer_norm_eps.dtype]))


def fused_layer_norm(value: Tensor, gain: Tensor, bias: Tensor, inverse_root_eps: Tensor) -> Tensor:
    """Computes `layer_norm` in three operations instead of nine. At epsilon 0 a constant vector gives `bias`, not NaN.

    PyTorch's kernel takes epsilon as a constant, but normalizing x with epsilon equals normalizing x / sqrt(epsilon)
    with epsilon 1. At epsilon 0 variances must be far above 1e-24 in single precision, 1e-60 in double.
    """
    normal = torch.nn.functional.layer_norm(value * inverse_root_eps, value.shape[-1:], eps=1.0)
    return torch.addcmul(bias, normal, gain)


def outside_layer_norm(value: Tensor, gain: Tensor, bias: Tensor, layer_norm_eps: Tensor) -> Tensor:
    """Computes (x - mean) / (std + layer_norm_eps) * gain + bias over the last axis: epsilon is outside the root.

    The standard deviation divides by n - 1, like `torch.std`. At epsilon 0 a constant vector gives NaN.
    Source: Conti 2024, the code of the thesis, with gain and bias per channel.
    """
    centred = value - value.mean(-1, keepdim=True)
    return torch.addcmul(bias, centred / (value.std(-1, keepdim=True) + layer_norm_eps), gain)
