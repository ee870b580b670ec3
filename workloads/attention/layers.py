"""Layers of transformers. `Linear` and `Embedding` start as zeros, for which the engine draws values, with `init_sigma`
null like PyTorch's. Names and orientation are PyTorch's too: a weight is (out, in). Axes: D model, V word, P position.
"""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, pad

from attnsweep.workloads.engine.constants import per_lane
from attnsweep.workloads.engine.initialization import DrawnByEngine
from attnsweep.workloads.engine.plain_forms import fused_layer_norm, inverse_root, outside_layer_norm

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": gelu,
    "gelu_tanh": functools.partial(gelu, approximate="tanh"),
}

_LONGEST_ONE_HOT = 64
"""Embeddings of up to so many rows are read by one-hot products: a lookup's gradient is slow."""
_VECTORS = 32
"""PyTorch's elementwise functions take so many numbers at a time, and round the remainder in another way."""


class Linear(nn.Linear, DrawnByEngine):
    def reset_parameters(self) -> None:
        for value in self.parameters():
            nn.init.zeros_(value)


class Embedding(nn.Embedding, DrawnByEngine):
    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        # Without gradients, as in probes, the lookup itself is fast. It refuses indices out of range.
        if self.num_embeddings > _LONGEST_ONE_HOT or not torch.is_grad_enabled():
            return embedding(input, self.weight)
        rows_V = torch.arange(self.num_embeddings, device=input.device)
        return (input.unsqueeze(-1) == rows_V).to(self.weight.dtype) @ self.weight


def sinusoids(longest: int, D: int) -> Tensor:
    """Sines and cosines in turns, sin(p / 10000^(2i / D)) in channel 2i, for position p: float64 (P, D). Source:
    Vaswani et al. 2017, section 3.5."""
    position_P1 = torch.arange(longest, dtype=torch.float64).unsqueeze(1)
    rate = torch.exp(torch.arange(0, D, 2, dtype=torch.float64) * (-math.log(10000.0) / D))
    encoding_PD = torch.zeros(longest, D, dtype=torch.float64)
    encoding_PD[:, 0::2] = torch.sin(position_P1 * rate)
    encoding_PD[:, 1::2] = torch.cos(position_P1 * rate[: D // 2])
    return encoding_PD


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + layer_norm_eps) * gain + bias over the last axis. At epsilon 0 a constant vector
    gives `bias`. Epsilon may differ within a pack.

    Args:
        layer_norm_eps: `None` if it is given to `forward`, because all norms of a model share it.
        eps_inside_root: If false, epsilon is added to the standard deviation: see `outside_layer_norm`.
    """

    def __init__(self, d_model: int, layer_norm_eps: float | None = 1e-5, *, eps_inside_root: bool = True) -> None:
        super().__init__()
        self.gain_D = nn.Parameter(torch.ones(d_model))
        self.bias_D = nn.Parameter(torch.zeros(d_model))
        if layer_norm_eps is not None:
            self.layer_norm_eps = per_lane(layer_norm_eps)
        self._eps_inside_root = eps_inside_root

    def forward(self, x: Tensor, layer_norm_eps: Tensor | None = None) -> Tensor:
        eps = self.layer_norm_eps if layer_norm_eps is None else layer_norm_eps
        if self._eps_inside_root:
            return fused_layer_norm(x, self.gain_D, self.bias_D, inverse_root(eps))
        return outside_layer_norm(x, self.gain_D, self.bias_D, eps)


class FeedForward(nn.Module):
    """g(x W_1^t + b_1) W_2^t + b_2 with `d_ffn` hidden channels and g among `ACTIVATIONS`: `gelu` is x Phi(x),
    `gelu_tanh` its approximation."""

    def __init__(self, d_model: int, d_ffn: int, *, activation: str = "relu") -> None:
        super().__init__()
        self.first = Linear(d_model, d_ffn)
        self.second = Linear(d_ffn, d_model)
        self.activation = activation
        self._n_filled = 0 if activation == "relu" else -d_ffn % _VECTORS

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.second(self.activated(self.first(x)))
        return output

    def activated(self, hidden: Tensor) -> Tensor:
        function = ACTIVATIONS[self.activation]
        if self._n_filled:
            return function(pad(hidden, (0, self._n_filled)))[..., : -self._n_filled]
        return function(hidden)
