"""Predicts gradient descent on a quadratic loss without taking the steps. Axes: L lane, n weight, m node.

Near a start of order 1 the gradient is H delta, where delta is the part of the weights that scales with init_sigma.
After t steps the loss has moved by 1/2 delta^t H (1 - eta (H + c))^2t delta, with the learning rate eta and the weight
decay c. This is a sum over the eigenvalues of H. Lanczos' method turns m products with H into Gauss's rule for it, with
m nodes. The rule is exact once m is the number of different eigenvalues in whose eigenspaces delta has a component.
Source: Golub and Meurant, Matrices, Moments and Quadrature, 1994.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MOST_NODES = 12
_NOTHING = 1e-6
"""A residual that is smaller than this, relative to H, is rounding or the nonlinear part of the gradient."""
_LONGEST = 2.0**40


def spectrum(product: Callable[[Tensor], Tensor], delta: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns nodes (L, m) and weights (L, m) of Gauss quadrature for the spectrum of the Hessian H along a direction.

    The nodes approximate eigenvalues of H. The weights are the squared components of the direction, and sum to 1.

    Args:
        product: Returns H times vectors (L, n) of length 1 or 0.
        delta: (L, n) the directions, of any length.
    """
    basis, size = [delta / delta.norm(dim=1, keepdim=True)], torch.zeros(len(delta), dtype=delta.dtype)
    matrix = delta.new_zeros(len(delta), _MOST_NODES, _MOST_NODES)
    for node in range(_MOST_NODES):
        image = product(basis[-1])
        matrix[:, node, node] = (image * basis[-1]).sum(1)
        size = size.maximum(image.norm(dim=1))
        # Each vector is projected out twice, because the rounding error of one pass is not small compared with a short
        # residual.
        for vector in (*basis, *basis):
            image = image - (image * vector).sum(1, keepdim=True) * vector
        length = image.norm(dim=1)
        continues = length > _NOTHING * size
        if node + 1 == _MOST_NODES or not continues.any():
            break
        matrix[:, node, node + 1] = matrix[:, node + 1, node] = length.where(continues, 0.0)
        basis.append(torch.where(continues[:, None], image / length[:, None], 0.0))
    nodes, vectors = torch.linalg.eigh(matrix)
    return nodes.numpy(), (vectors[:, 0] ** 2).numpy()


def steps_until(
    fall: NDArray[np.float64],
    curvature: NDArray[np.float64],
    growth: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Returns the first step t at which a quadratic loss, sum_m weights curvature growth^2t / 2, is at most -fall,
    (L,); else infinite.

    Args:
        fall: (L,) by how much the loss has to fall, above 0.
        curvature: (L, m) the eigenvalues of H.
        growth: (L, m) the factor by which one step multiplies the component of delta along each eigenvector; its
            absolute value is at most 1 where the curvature is positive.
        weights: (L, m) the squared length of each component.
    """

    def has_fallen(steps: NDArray[np.float64]) -> NDArray[np.bool_]:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            parts = weights * curvature * np.abs(growth) ** (2 * steps[:, None])
        return np.asarray(np.nan_to_num(parts, nan=0.0, neginf=-np.inf).sum(1) / 2 <= -fall)

    low, high = np.zeros_like(fall), np.full_like(fall, _LONGEST)
    falls = has_fallen(high)
    while (high - low).max() > 1:
        middle = np.floor((low + high) / 2)
        fallen = has_fallen(middle)
        low, high = np.where(fallen, low, middle), np.where(fallen, middle, high)
    return np.where(falls, np.where(has_fallen(low), low, high), np.inf)
