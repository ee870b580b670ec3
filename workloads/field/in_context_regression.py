"""In-context linear regression with linear attention; the loss is exact over the distribution of the data.

A sequence holds N pairs (x_n, y_n = w^t x_n) and a last x whose y is asked for, with x ~ N(0, Lambda) and a w ~ N(0, I)
of its own. The attention's answer is b^t M x with b = sum_n y_n x_n / N. Lambda is diagonal without loss of generality,
because the distribution of a start is invariant under rotations.

Axes of one training: D dimension of x, H head, R rank.

Source: Zhang, Singh, Latham & Saxe 2025, "Training Dynamics of In-Context Learning in Linear Attention".
"""

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from attnsweep.workloads.problem.declared import problem
from attnsweep.workloads.problem.draw import Draw

_MOST_DIRECTIONS = 8
"""Levels and events are declared for so many."""


class LinearAttentionMatrix(nn.Module):
    """M = s sum_h v_h W_h, where W_h is one matrix (`merged`) or K_h^t Q_h of rank R (`separate`).

    Under `init_sigma` null each matrix starts as N(0, 0.01^2 / its number of entries), the rule of the authors' code.
    """

    scale: Tensor

    def __init__(self, dimension: int, n_heads: int, kq: str, rank: int, attention_scale: float) -> None:
        super().__init__()
        self.value = _drawn(n_heads, 1, 1)
        if kq == "merged":
            self.key_query = _drawn(n_heads, dimension, dimension)
        else:
            self.key, self.query = _drawn(n_heads, rank, dimension), _drawn(n_heads, rank, dimension)
        self.register_buffer("scale", torch.tensor(attention_scale, dtype=torch.float64))

    def forward(self, variance_D: Tensor) -> Tensor:
        """(D, D) the matrix M, of whatever data."""
        del variance_D
        product_HDD = self.key_query if hasattr(self, "key_query") else self.key.mT @ self.query
        matrix_DD: Tensor = self.scale * (self.value * product_HDD).sum(0)
        return matrix_DD


def _drawn(*shape: int) -> nn.Parameter:
    values = torch.randn(shape)
    return nn.Parameter(0.01 * values / values.numel() ** 0.5)


def model(
    dimension: int = 4,
    n_heads: int = 5,
    kq: Literal["merged", "separate"] = "separate",
    rank: int = 1,
    attention_scale: float = 1.0,
) -> nn.Module:
    """The attention of one training; `rank` is that of separate keys and queries."""
    return LinearAttentionMatrix(dimension, n_heads, kq, rank, attention_scale)


def data(draw: Draw, dimension: int = 4, covariance: Literal["linear", "white"] = "linear") -> tuple[Tensor, Tensor]:
    """The variances of x along its axes, which sum to 1: all that the loss is made of."""
    # What is drawn gives the device alone.
    variance_D = torch.ones_like(draw.fixed.uniform(dimension))
    if covariance == "linear":
        variance_D = variance_D.cumsum(0)
    return variance_D / variance_D.sum(), variance_D


def second_moment(variance_D: Tensor, n_context: int) -> Tensor:
    """(D,) the diagonal of E b b^t = Lambda^2 + (Lambda^2 + tr(Lambda) Lambda) / N, by Isserlis' theorem."""
    return variance_D**2 + (variance_D**2 + variance_D.sum() * variance_D) / n_context


def loss(output: Tensor, inputs: Tensor, n_context: int = 31) -> Tensor:
    """E (y - b^t M x)^2 = tr(Lambda) - 2 tr(Lambda M Lambda) + tr(M Lambda M^t E b b^t)."""
    squared = (second_moment(inputs, n_context).unsqueeze(1) * output**2 * inputs).sum()
    return inputs.sum() - 2 * (inputs**2 * output.diagonal()).sum() + squared


def gains(variance_D: Tensor, n_context: int) -> Tensor:
    """(D,) by how much the loss falls with each eigen-direction that is learned."""
    return variance_D**3 / second_moment(variance_D, n_context)


def _level(n_directions: int, inputs: Tensor, n_context: int) -> Tensor:
    """The fixed point at which the directions of the largest variances are learned; NaN if that is all of them."""
    gain_D = gains(inputs, n_context).sort(descending=True).values
    return inputs.sum() - gain_D[:n_directions].sum() if n_directions < len(inputs) else inputs.new_tensor(torch.nan)


def _gap(output: Tensor, inputs: Tensor, n_context: int) -> Tensor:
    """The part of what can be learned that is not: 1 at the zero, 0 at the optimum."""
    least = inputs.sum() - gains(inputs, n_context).sum()
    return (loss(output, inputs, n_context) - least) / (inputs.sum() - least)


def _directions(output: Tensor, inputs: Tensor, n_context: int) -> Tensor:
    """The number of eigen-directions whose entry of M is beyond half of its optimum."""
    optimum_D = inputs / second_moment(inputs, n_context)
    return (output.diagonal() > optimum_D / 2).to(output.dtype).sum()


IN_CONTEXT_REGRESSION = problem(
    "in_context_regression",
    model=model,
    data=data,
    loss=loss,
    solved="gap <= 0.01",
    metrics={"gap": _gap, "directions": _directions},
    levels={f"directions_{n}": partial(_level, n) for n in range(1, _MOST_DIRECTIONS)},
    events={f"direction_{n}": f"directions >= {n}" for n in range(1, _MOST_DIRECTIONS + 1)},
    defaults={"dtype": "float64", "optimizer": "sgd", "learning_rate": 0.2, "init_sigma": 0.01, "n_steps": 40_000},
    summary="linear attention learns linear regression in context, by one drop or a staircase",
)
