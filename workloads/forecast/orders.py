"""The orders of the gradient in init_sigma at the start: |gradient| ~ sigma^p, with an order p for each parameter.

A parameter here is a tensor of the module. Axes: S seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.forecast.start import RATIO, Start, in_float64, scale_with_sigma
from attnsweep.workloads.parameters import TrainingParameters


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """The order of a gradient at the start with respect to one parameter: its power of init_sigma.

    Attributes:
        parameter: The name of the parameter.
        order: The median over seeds of p = log(|g(sigma)| / |g(sigma / 3)|) / log 3; `None` where all gradients are 0.
        low, high: The smallest and the largest p of a seed.
    """

    parameter: str
    order: float | None
    low: float | None = None
    high: float | None = None


def orders(
    workload: Workload[Any], parameters: TrainingParameters, sigma: float, seeds: Sequence[int]
) -> tuple[Order, ...]:
    """Measures the order (power of init_sigma) of each parameter's gradient between sigma and sigma / 3, in float64.

    Args:
        workload: A workload whose trainings start from `init_sigma` times a normal draw.
        parameters: The parameters of the trainings; `init_sigma` is replaced.
        sigma: The larger value of init_sigma, above 0.
        seeds: S seeds. The order of a seed does not depend on the others.

    Raises:
        NotAScaleFamilyError: If `init_sigma` does not scale what is drawn.
    """
    large, small = (
        Start(workload, [in_float64(Training(parameters, seed), init_sigma=scale) for seed in seeds])
        for scale in (sigma, sigma / RATIO)
    )
    scale_with_sigma(large.weights, small.weights)
    below = small.gradients()
    return tuple(order_of(name, gradient, below[name]) for name, gradient in large.gradients().items())


def start_order(parameter_orders: Sequence[Order]) -> float | None:
    """Returns the lowest order, which decides when a training leaves its start; `None` if all gradients are 0."""
    return min((order.order for order in parameter_orders if order.order is not None), default=None)


def norm_threshold(workload: Workload[Any], parameters: TrainingParameters, seed: int) -> float | None:
    """Returns the init_sigma at which a LayerNorm changes the orders of gradients: sqrt(layer_norm_eps).

    A LayerNorm passes on an input that is smaller than this nearly in proportion, but normalizes a larger one. `None`
    for a workload without `layer_norm_eps`, and for trainings whose first gradient does not depend on it.
    """
    epsilon = getattr(parameters, "layer_norm_eps", None)
    if not isinstance(epsilon, float) or epsilon == 0:
        return None
    sigma = math.sqrt(epsilon)
    try:
        pair = [
            parameters.resolve({**parameters.values(), "dtype": "float64", "init_sigma": sigma, "layer_norm_eps": eps})
            for eps in (epsilon, 4 * epsilon)
        ]
    except UserError:
        return None  # Trainings without LayerNorm accept no other epsilon, so a threshold does not exist.
    gradients = Start(workload, [Training(member, seed) for member in pair]).gradients()
    return sigma if any(not torch.allclose(pair_g[0], pair_g[1]) for pair_g in gradients.values()) else None


def order_of(name: str, large: Tensor, small: Tensor) -> Order:
    above, below = (gradient.flatten(1).norm(dim=1) for gradient in (large, small))
    has_gradient = (above > 0) & (below > 0)
    if not has_gradient.any():
        return Order(parameter=name, order=None)
    order_S = (above / below)[has_gradient].log() / math.log(RATIO)
    return Order(
        parameter=name,
        order=float(order_S.quantile(0.5)),
        low=float(order_S.min()),
        high=float(order_S.max()),
    )
