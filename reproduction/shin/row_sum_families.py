"""The loss level of two families of system C in closed form: those in which the row sums sg_i + d_i of v add up to 0.

The level is E Y^2 - G. `zero_row_sums` (each sg_i + d_i = 0) and `zero_diagonal` (q(t,t) = 0, Sum_i (sg_i + d_i) = 0)
contain the same predictors. With row sums 0, adding a(t) to the columns of q changes no answer, and a(t) = -q(t,t)
makes the diagonal 0; with a zero diagonal, the d_i change no answer, and d_i = -sg_i makes the row sums 0. The families
cross where both conditions hold [P].

At the crossing the rows of v are alike: p at the predecessor, o elsewhere. For a given ratio o : p the loss is
quadratic in q; its minimum is the level E Y^2 - G, and the stationary points are those of G over the ratio. Each column
of q has a linear form g and a quadratic form alpha + beta h h^t, h = 1 off the diagonal, and contributes g^t (alpha +
beta h h^t)^-1 g. A maximum of G has Hessian index 1, a minimum 2 [M].

Axes: R ratio tried, N category. Letters as in docs/theory.md, system C.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_N_ANGLES = 1024
_N_ZOOMS = 6


@dataclass(frozen=True, slots=True)
class StationaryGain:
    """A stationary value of the gain G as a function of the ratio o : p, which `angle` gives as its tangent."""

    value: float
    angle: float
    index: int


def gain(angle_R: Tensor, target_NN: Tensor, n_positions: int) -> Tensor:
    """Returns the gain G (R,) for ratios o : p, which are given as the tangents of angles."""
    N = target_NN.shape[0]
    p_R, o_R = angle_R.cos(), angle_R.sin()
    sum_R = p_R + (n_positions - 2) * o_R
    n_R = p_R.square() + (n_positions - 2) * o_R.square()
    mean_N = target_NN.mean(0)
    h_NN = 1 - torch.eye(N).to(target_NN)
    g_RNN = _outer(p_R / N**2, h_NN * (target_NN - mean_N)) + _outer(sum_R / N**2, h_NN * mean_N)
    alpha_R, beta_R = n_R / N**2, (sum_R.square() - n_R) / N**3
    # The Sherman-Morrison formula, with |h|^2 = N - 1, inverts the matrix alpha + beta h h^t.
    correction_R = beta_R / (alpha_R + beta_R * (N - 1)) * g_RNN.sum(1).square().sum(1)
    return (g_RNN.square().sum((1, 2)) - correction_R) / alpha_R


def stationary_gains(target_NN: Tensor, n_positions: int) -> list[StationaryGain]:
    """Returns all maxima and minima of the gain G over the ratio o : p, which is searched as an angle between 0 and pi.

    Args:
        target_NN: The table q*, float64.
        n_positions: M, at least 3.
    """
    angles = torch.linspace(0.0, math.pi, _N_ANGLES + 1, dtype=torch.float64)[:-1]
    values = gain(angles, target_NN, n_positions)
    before, after = values.roll(1), values.roll(-1)
    maxima = angles[(values > before) & (values >= after)]
    minima = angles[(values < before) & (values <= after)]
    gains = []
    for starts, sign, index in ((maxima, 1.0, 1), (minima, -1.0, 2)):
        for start in starts.tolist():
            angle = _zoomed(lambda angle_R: gain(angle_R, target_NN, n_positions), start, sign)
            value = gain(angles.new_tensor([angle]), target_NN, n_positions).item()
            gains.append(StationaryGain(value, angle, index))
    return gains


def _zoomed(function: Callable[[Tensor], Tensor], angle: float, sign: float) -> float:
    """Returns the angle near a grid angle at which `sign` times the function is largest."""
    width = math.pi / _N_ANGLES
    for _ in range(_N_ZOOMS):
        near = torch.linspace(angle - width, angle + width, 21, dtype=torch.float64)
        angle = near[(sign * function(near)).argmax()].item()
        width /= 10
    return angle


def _outer(factor_R: Tensor, table_NN: Tensor) -> Tensor:
    return factor_R.view(-1, 1, 1) * table_NN
