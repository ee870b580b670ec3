"""Sparse parity: predict the product of k of n random signs. Fewer than k of them carry no information about it."""

from typing import Any, Literal

from torch import Tensor, nn

import attnsweep as at


def model(
    n_bits: int = at.parameter(20, "signs of the input, n", low=1),
    width: int = at.parameter(100, "ReLUs of the hidden layer"),
    norm: Literal["none", "pre"] = at.parameter("none", "pre: a LayerNorm before the ReLUs"),
    layer_norm_eps: float = at.parameter(1e-5, "inside the root, with norm=pre", low=0),
) -> nn.Module:
    """One hidden layer of ReLUs, with norm=pre after a LayerNorm, from n signs to one number."""
    normed = [at.LayerNorm(width, layer_norm_eps)] if norm == "pre" else []
    return nn.Sequential(nn.Linear(n_bits, width), *normed, nn.ReLU(), nn.Linear(width, 1), nn.Flatten(-2))


def signs(
    draw: at.Draw,
    n_bits: int,
    k: int = at.parameter(3, "signs that count", low=1),
    batch_size: int = at.parameter(32, "examples per step"),
) -> tuple[Tensor, Tensor]:
    """Uniform random signs, (batch_size, n_bits). The label is the product of the first k, which is no restriction: the
    model treats all positions alike."""
    sign = 2.0 * draw.integers(2, batch_size, n_bits) - 1
    return sign, sign[:, :k].prod(-1)


def hinge(output: Tensor, target: Tensor) -> Tensor:
    """max(0, 1 - output * target), the hinge loss of Barak et al. and Hu et al."""
    return (1 - output * target).clamp(min=0).mean()


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """The share of outputs with the right sign; 0 is wrong."""
    return (output * target > 0).to(output.dtype).mean()


def weight_on_parity(module: Any, k: int) -> Tensor:
    """The share of the first layer's squared weights on the k signs; at the start about k / n_bits."""
    power = module[0].weight.square().sum(0)
    share: Tensor = power[:k].sum() / power.sum()
    return share


SparseParity = at.problem(
    "sparse_parity",
    model=model,
    data=signs,
    loss=hinge,
    solved="accuracy >= 0.98",
    metrics={"accuracy": accuracy, "weight_on_parity": weight_on_parity},
    events={"begun": "accuracy >= 0.6", "learned": "accuracy >= 0.98"},
    defaults={"optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 0.01, "n_steps": 10000},
    probe_steps=10,
    summary="the product of k of n signs: nothing for about n^k steps, then all at once",
)
