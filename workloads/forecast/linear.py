"""Gradient descent on a quadratic loss, without taking its steps. Axes: L lane, n weight, m node.

Near a start of order 1 the gradient is H delta, where delta is what scales with init_sigma. After t steps the loss has
moved by 1/2 delta^t H (1 - eta (H + c))^2t delta, eta the learning rate, c the weight decay. Lanczos' method turns m
products with H into Gauss's rule for this sum over the eigenvalues of H: exact once m is the number of different ones
that delta has a part in.
Source: Golub and Meurant, Matrices, Moments and Quadrature, 1994.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MOST_NODES = 12
_NOTHING = 1e-6
"""The relative size of a residual that is rounding, or what the gradient has beyond its linear part."""
_LONGEST = 2.0**40


def spectrum(product: Callable[[Tensor], Tensor], delta: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The nodes (L, m), eigenvalues of H, and the weights (L, m) of a direction at them, which add up to 1.

    Args:
        product: H times some vectors (L, n) of length 1 or 0.
        delta: (L, n) the directions.
    """
    basis, size = [delta / delta.norm(dim=1, keepdim=True)], torch.zeros(len(delta), dtype=delta.dtype)
    matrix = delta.new_zeros(len(delta), _MOST_NODES, _MOST_NODES)
    for node in range(_MOST_NODES):
        image = product(basis[-1])
        matrix[:, node, node] = (image * basis[-1]).sum(1)
        size = size.maximum(image.norm(dim=1))
        # Twice: what the first pass leaves is not small beside a short residual.
        for vector in (*basis, *basis):
            image = image - (image * vector).sum(1, keepdim=True) * vector
        length = image.norm(dim=1)
        goes_on = length > _NOTHING * size
        if node + 1 == _MOST_NODES or not goes_on.any():
            break
        matrix[:, node, node + 1] = matrix[:, node + 1, node] = length.where(goes_on, 0.0)
        basis.append(torch.where(goes_on[:, None], image / length[:, None], 0.0))
    nodes, vectors = torch.linalg.eigh(matrix)
    return nodes.numpy(), (vectors[:, 0] ** 2).numpy()


def steps_until(
    fall: NDArray[np.float64],
    curvature: NDArray[np.float64],
    growth: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(L,) the first step t at which sum_m weights curvature growth^2t / 2 is at most -fall; infinite if none is.

    Args:
        fall: (L,) above 0.
        curvature: (L, m) eigenvalues of H.
        growth: (L, m) by what one step multiplies each part of the weights; their absolute values are at most 1 where
            the curvature is positive.
        weights: (L, m) the squared length of each part.
    """

    def has_fallen(steps: NDArray[np.float64]) -> NDArray[np.bool_]:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            parts = weights * curvature * np.abs(growth) ** (2 * steps[:, None])
        return np.asarray(np.nan_to_num(parts, nan=0.0, neginf=-np.inf).sum(1) / 2 <= -fall)

    low, high = np.zeros_like(fall), np.full_like(fall, _LONGEST)
    ever = has_fallen(high)
    while (high - low).max() > 1:
        middle = np.floor((low + high) / 2)
        fallen = has_fallen(middle)
        low, high = np.where(fallen, low, middle), np.where(fallen, middle, high)
    return np.where(ever, np.where(has_fallen(low), low, high), np.inf)
