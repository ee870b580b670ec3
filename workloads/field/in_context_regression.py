"""In-context linear regression with linear attention; the loss is exact over the distribution of the data.

A sequence holds N pairs (x_n, y_n = w^t x_n) and a last x, whose y the model predicts. The x are N(0, Lambda), Lambda
diagonal without loss of generality, and each sequence has its own w ~ N(0, I). The prediction is b^t M x with
b = sum_n y_n x_n / N and a matrix M of the attention's weights. Axes of one training: D dimension of x, H head, R rank.
Source: Zhang, Singh, Latham & Saxe 2025, "Training Dynamics of In-Context Learning in Linear Attention".
"""

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from attnsweep.workloads.declaration import parameter
from attnsweep.workloads.engine.constants import per_lane
from attnsweep.workloads.problem.data import Draw
from attnsweep.workloads.problem.declared import problem

_MAX_DIRECTIONS = 8
"""Levels and events are declared for up to this number of principal directions of the inputs."""


class LinearAttentionMatrix(nn.Module):
    """Multi-head linear attention, as the matrix M = s sum_h v_h W_h of its predictions b^t M x, with a scale s. Head h
    has a number v_h and a matrix W_h, which is one parameter (`merged`) or the product K_h^t Q_h (`separate`), of
    `rank` rows each. With `init_sigma` null each parameter starts as N(0, 0.01^2 / number of its entries), the rule of
    the authors' code."""

    def __init__(self, dimension: int, n_heads: int, kq: str, rank: int, attention_scale: float) -> None:
        super().__init__()
        self.value = _drawn(n_heads, 1, 1)
        if kq == "merged":
            self.key_query = _drawn(n_heads, dimension, dimension)
        else:
            self.key, self.query = _drawn(n_heads, rank, dimension), _drawn(n_heads, rank, dimension)
        self.scale = per_lane(attention_scale)

    def forward(self, variance_D: Tensor) -> Tensor:
        """M, through which alone the loss depends on the parameters."""
        del variance_D
        product_HDD = self.key_query if hasattr(self, "key_query") else self.key.mT @ self.query
        matrix_DD: Tensor = self.scale * (self.value * product_HDD).sum(0)
        return matrix_DD


def _drawn(*shape: int) -> nn.Parameter:
    values = torch.randn(shape)
    return nn.Parameter(0.01 * values / values.numel() ** 0.5)


def model(
    dimension: int = parameter(4, "D, numbers of an input"),
    n_heads: int = parameter(5, "H, attention heads"),
    kq: Literal["merged", "separate"] = parameter("separate", "train keys and queries apart, or their product"),
    rank: int = parameter(1, "R, rows of keys and queries, with kq=separate"),
    attention_scale: float = parameter(1.0, "factor of the predictions"),
) -> nn.Module:
    return LinearAttentionMatrix(dimension, n_heads, kq, rank, attention_scale)


def data(
    draw: Draw,
    dimension: int = 4,
    covariance: Literal["linear", "white"] = parameter("linear", "variances of the inputs: as 1, 2, ..., D, or equal"),
) -> tuple[Tensor, Tensor]:
    """The variances of the inputs along their axes, which sum to 1, and a target that the loss ignores."""
    # `ones_like` needs a tensor on the training's device.
    variance_D = torch.ones_like(draw.fixed.uniform(dimension))
    if covariance == "linear":
        variance_D = variance_D.cumsum(0)
    return variance_D / variance_D.sum(), variance_D


def second_moment(variance_D: Tensor, n_context: int) -> Tensor:
    """The mean square of each component of b: Lambda^2 + (Lambda^2 + tr(Lambda) Lambda) / N, by Isserlis' theorem."""
    return variance_D**2 + (variance_D**2 + variance_D.sum() * variance_D) / n_context


def loss(output: Tensor, inputs: Tensor, n_context: int = parameter(31, "N, pairs of a sequence")) -> Tensor:
    """E (y - b^t M x)^2 = tr(Lambda) - 2 tr(Lambda M Lambda) + tr(M Lambda M^t E b b^t), for the `output` M and the
    `inputs` Lambda."""
    squared = (second_moment(inputs, n_context).unsqueeze(1) * output**2 * inputs).sum()
    return inputs.sum() - 2 * (inputs**2 * output.diagonal()).sum() + squared


def gains(variance_D: Tensor, n_context: int) -> Tensor:
    """By how much the loss falls when attention learns each principal direction."""
    return variance_D**3 / second_moment(variance_D, n_context)


def _level(n_directions: int, inputs: Tensor, n_context: int) -> Tensor:
    """The loss if the `n_directions` directions of largest variance are learned; NaN if those are all or more."""
    gain_D = gains(inputs, n_context).sort(descending=True).values
    return inputs.sum() - gain_D[:n_directions].sum() if n_directions < len(inputs) else inputs.new_tensor(torch.nan)


def _gap(output: Tensor, inputs: Tensor, n_context: int) -> Tensor:
    """0 at the optimum, 1 if the model always predicts 0."""
    optimum = inputs.sum() - gains(inputs, n_context).sum()
    return (loss(output, inputs, n_context) - optimum) / (inputs.sum() - optimum)


def _directions(output: Tensor, inputs: Tensor, n_context: int) -> Tensor:
    """The number of directions whose entry in `output` is above half of its optimum."""
    optimum_D = inputs / second_moment(inputs, n_context)
    return (output.diagonal() > optimum_D / 2).to(output.dtype).sum()


IN_CONTEXT_REGRESSION = problem(
    "in_context_regression",
    model=model,
    data=data,
    loss=loss,
    solved="gap <= 0.01",
    metrics={"gap": _gap, "directions": _directions},
    levels={f"directions_{n}": partial(_level, n) for n in range(1, _MAX_DIRECTIONS)},
    events={f"direction_{n}": f"directions >= {n}" for n in range(1, _MAX_DIRECTIONS + 1)},
    defaults={"dtype": "float64", "optimizer": "sgd", "learning_rate": 0.2, "init_sigma": 0.01, "n_steps": 40_000},
    summary="linear attention learns linear regression in context, by one drop or a staircase",
)
