"""Estimates the smallest eigenvalue of each training's Hessian by Lanczos' method: below 0, there is a direction of
negative curvature.

Hessian-vector products are second backward passes; the Hessian is never formed. No library fits: `torch.lobpcg` needs
the matrix, and SciPy's `eigsh` takes one training at a time, on the CPU. Axes: l training, n parameter, i and j
iteration. Source: Lanczos 1950, with full re-orthogonalization.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.lbfgs import flattened, unflattened
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams

_MAX_ITERATIONS = 50
_BREAKDOWN = 1e-12
"""Lanczos' method ends if the next direction is shorter than this share of the largest curvature: none is left."""


@dataclass(frozen=True, slots=True)
class Curvature:
    """The smallest eigenvalue of each training's Hessian H as Lanczos' method estimates it.

    Attributes:
        smallest: The smallest Ritz value: an upper bound.
        direction: Its Ritz vector x of norm 1, (n_trainings, ...) by parameter name.
        error: |H x - smallest x|: an eigenvalue lies within this distance of `smallest`.
        largest: The largest absolute Ritz value, the scale for comparisons.
    """

    smallest: Tensor
    direction: State
    error: Tensor
    largest: Tensor

    def is_negative(self, share: float = 1e-6) -> Tensor:
        """Whether `smallest` is below 0 by more than its error and by more than this share of `largest`."""
        return (self.smallest + self.error < 0) & (self.smallest < -share * self.largest)


def smallest_curvature(objective: Objective, parameters: State, streams: Streams) -> Curvature:
    point = flattened(parameters)
    n_lanes, n_parameters = point.shape
    n_iterations = min(_MAX_ITERATIONS, n_parameters)
    vector = streams.normal("lanczos/start", (n_parameters,)).to(point)
    basis = point.new_zeros(n_iterations, n_lanes, n_parameters)
    products = torch.zeros_like(basis)
    for iteration in range(n_iterations):
        norm = vector.norm(dim=1, keepdim=True)
        scale = products.norm(dim=2).amax(0).unsqueeze(1) if iteration else torch.ones_like(norm)
        # With no direction left in a training's Krylov space its vectors are 0, which `_lower_end` ignores.
        vector = torch.where(norm > _BREAKDOWN * scale, vector / norm, torch.zeros_like(vector))
        basis[iteration] = vector
        products[iteration] = hessian_product(objective, parameters, vector)
        vector = products[iteration].clone()
        for _ in range(2):
            overlap = torch.einsum("jln,ln->jl", basis[: iteration + 1], vector)
            vector = vector - torch.einsum("jl,jln->ln", overlap, basis[: iteration + 1])
    return _lower_end(basis, products, parameters)


def hessian_product(objective: Objective, parameters: State, vector: Tensor) -> Tensor:
    """The Hessian of each training's loss times its row of `vector`."""
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    values = list(leaves.values())
    losses = objective.losses(leaves)
    gradients = torch.autograd.grad(losses.sum(), values, create_graph=True, materialize_grads=True)
    slope = (flattened(dict(zip(leaves, gradients, strict=True))) * vector).sum()
    seconds = torch.autograd.grad(slope, values, materialize_grads=True)
    return flattened(dict(zip(leaves, seconds, strict=True)))


def _lower_end(basis: Tensor, products: Tensor, parameters: State) -> Curvature:
    small = torch.einsum("iln,jln->lij", basis, products)
    small = (small + small.mT) / 2
    # The eigenvalues of vectors that are 0 are shifted above the spectrum.
    is_empty = basis.square().sum(2).T == 0
    bound = small.abs().amax((1, 2)) * small.shape[1] + 1.0
    small = small + torch.diag_embed(is_empty * bound.unsqueeze(1))
    ritz, coefficients = torch.linalg.eigh(small)
    smallest = ritz[:, 0]
    direction = torch.einsum("lj,jln->ln", coefficients[:, :, 0], basis)
    product = torch.einsum("lj,jln->ln", coefficients[:, :, 0], products)
    error = (product - smallest.unsqueeze(1) * direction).norm(dim=1)
    largest = torch.where(ritz < bound.unsqueeze(1), ritz.abs(), torch.zeros_like(ritz)).amax(1)
    return Curvature(smallest, unflattened(direction, parameters), error, largest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Saddle:
    """The smallest curvature of the loss at one training's weights, for a step of norm 1, and each parameter's share of
    the squared step. It `is_negative` by `Curvature`'s test."""

    curvature: float
    is_negative: bool
    weights: Mapping[str, float]

    def steps(self, learning_rate: float) -> float:
        """In which gradient descent's displacement grows by the factor e, if the curvature is negative."""
        return 1 / (learning_rate * -self.curvature)


def saddle_of(objective: Objective, parameters: State, streams: Streams) -> Saddle | None:
    """Of one training, in float64; `None` if the loss has no second derivatives."""
    try:
        # PyTorch's fused attention has no second derivatives, MATH has.
        with sdpa_kernel(SDPBackend.MATH):
            curvatures = smallest_curvature(objective, parameters, streams)
    except RuntimeError:  # an operation of the user's loss has none either
        return None
    return Saddle(
        curvature=float(curvatures.smallest[0]),
        is_negative=bool(curvatures.is_negative()[0]),
        weights={name: float(value[0].square().sum()) for name, value in curvatures.direction.items()},
    )
