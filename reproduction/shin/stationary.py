"""A search for the stationary points of a loss, with Hessian index, for all lanes at once.

Minimizes |gradient|^2 / 2 by damped least squares (Levenberg-Marquardt on the gradient, whose Jacobian is the Hessian):
unlike descent it converges to saddles as well as to minima, and unlike plain Newton it copes with the singular Hessians
of continuous families. The Hessian is formed, so problems must be small. Axes: L lane, n parameter.
Source: Nocedal & Wright 2006, section 10.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, grad_and_value, jacrev, vmap

from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.lbfgs import flattened, unflattened
from attnsweep.workloads.engine.optimizers import State

_FLAT = 1e-6
"""An eigenvalue below this share of the largest counts as 0: a direction along a family, neither up nor down."""
_FAR = 1e3
"""A point of larger norm counts as diverging to infinity, where gradients vanish without a stationary point."""


@dataclass(frozen=True, slots=True)
class StationaryPoints:
    """The ends of L searches.

    Attributes:
        parameters: (L, ...) by name.
        losses: (L,).
        gradient_norm: (L,).
        index: (L,) int64 number of negative eigenvalues of the Hessian.
        converged: (L,) bool, whether the end is a finite point with a vanishing gradient.
    """

    parameters: State
    losses: Tensor
    gradient_norm: Tensor
    index: Tensor
    converged: Tensor


def find_stationary_points(
    objective: Objective, parameters: State, n_iterations: int = 200, tolerance: float = 1e-10
) -> StationaryPoints:
    """Searches from the parameters (L, ...), in their own precision: use float64.

    Args:
        objective: Losses of L lanes, twice differentiable.
        parameters: (L, ...) where to start.
        n_iterations: The most iterations, each with one Hessian.
        tolerance: The gradient norm below which a point counts as stationary.
    """
    derivatives = _Derivatives(objective, parameters)
    point = flattened(parameters)
    _, gradient = derivatives.first(point)
    damping = gradient.new_ones(gradient.shape[0])
    for _ in range(n_iterations):
        curvature, axes = torch.linalg.eigh(derivatives.second(point))
        along = torch.einsum("lij,li->lj", axes, gradient)
        step = -curvature / (curvature.square() + damping.unsqueeze(1)) * along
        trial = point + torch.einsum("lij,lj->li", axes, step)
        _, trial_gradient = derivatives.first(trial)
        is_better = trial_gradient.norm(dim=1) < gradient.norm(dim=1)
        point = torch.where(is_better.unsqueeze(1), trial, point)
        gradient = torch.where(is_better.unsqueeze(1), trial_gradient, gradient)
        damping = torch.where(is_better, damping / 4, damping * 4).clamp(1e-16, 1e8)
        if bool((gradient.norm(dim=1) < tolerance).all()):
            break
    losses, gradient = derivatives.first(point)
    curvature = torch.linalg.eigvalsh(derivatives.second(point))
    scale = curvature.abs().amax(1, keepdim=True)
    gradient_norm = gradient.norm(dim=1)
    return StationaryPoints(
        parameters=unflattened(point, parameters),
        losses=losses,
        gradient_norm=gradient_norm,
        index=(curvature < -_FLAT * scale).sum(1),
        converged=(gradient_norm < tolerance) & (point.norm(dim=1) < _FAR),
    )


def nearest_level(
    losses: NDArray[np.float64], levels: Mapping[str, NDArray[np.float64]], tolerance: float = 1e-6
) -> NDArray[np.str_]:
    """(L,) the name of the reference level that each loss is at; `none` if it is at no level.

    Args:
        losses: (L,) in the units of the levels.
        levels: (L,) by name.
        tolerance: The largest distance of a loss from its level.
    """
    names = np.array([*levels, "none"])
    distance = np.stack([np.abs(losses - level) for level in levels.values()])
    nearest = distance.argmin(0)
    return np.where(distance.min(0) <= tolerance, names[nearest], "none")


class _Derivatives:
    """Gradients and Hessians of all lanes at points (L, n)."""

    def __init__(self, objective: Objective, like: State) -> None:
        one_lane = {name: value[:1] for name, value in like.items()}

        def loss(point: Tensor, buffers: State, batch: State) -> Tensor:
            parameters = {name: value[0] for name, value in unflattened(point.unsqueeze(0), one_lane).items()}
            return objective.one_lane(parameters, buffers, batch)

        self._objective = objective
        self._first = vmap(grad_and_value(loss))
        # Reverse over reverse, because forward mode makes a deprecated call.
        self._second = vmap(jacrev(grad(loss)))

    def first(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Losses (L,) and gradients (L, n)."""
        gradients, losses = self._first(point, self._objective.buffers, self._objective.batch)
        return losses, gradients

    def second(self, point: Tensor) -> Tensor:
        """Hessians (L, n, n)."""
        result: Tensor = self._second(point, self._objective.buffers, self._objective.batch)
        return result
