"""Layer normalization with an epsilon per training, which PyTorch's own takes only as a constant of the program."""

import torch
from torch import Tensor


def layer_norm(value: Tensor, gain: Tensor, bias: Tensor, layer_norm_eps: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + layer_norm_eps) * gain + bias over the last axis; epsilon inside the root.

    Source: Ba, Kiros & Hinton 2016, equation 4; as `torch.nn.LayerNorm`.
    """
    centred = value - value.mean(-1, keepdim=True)
    return centred * inverse_deviation(centred, layer_norm_eps) * gain + bias


def inverse_deviation(centred: Tensor, layer_norm_eps: Tensor, dim: int = -1) -> Tensor:
    """1 / sqrt(variance + layer_norm_eps) over an axis, kept, of values whose mean there is 0."""
    return torch.rsqrt(centred.square().mean(dim, keepdim=True) + layer_norm_eps)
