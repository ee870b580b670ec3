"""Orders of the gradient in init_sigma where trainings start: |gradient| ~ sigma^p, a p for each block of parameters.

Axes: S seed, L lane (the S trainings at sigma, then the same at sigma / 3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.functional import over_lanes
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.starting_state import starting_state
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import TrainingParameters

_RATIO = 3.0
_ROUNDING = 1e-12
"""The relative difference within which two draws are the same draw."""


class NotAScaleFamilyError(Exception):
    """The starts at two values of init_sigma are not one normal draw at two scales; says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """The order of one block.

    Attributes:
        parameter: The name of the parameter.
        order: The median over seeds of p = log(|g(sigma)| / |g(sigma / 3)|) / log 3; `None` where all gradients are 0.
        low, high: The least and the largest p of a seed.
    """

    parameter: str
    order: float | None
    low: float | None = None
    high: float | None = None


def orders(
    workload: Workload[Any], parameters: TrainingParameters, sigma: float, seeds: Sequence[int]
) -> tuple[Order, ...]:
    """The orders of all blocks between sigma and sigma / 3, in float64 whatever `dtype` is.

    Args:
        workload: Any whose trainings start from `init_sigma` times a normal draw.
        parameters: Those of the trainings; their `init_sigma` is replaced.
        sigma: The larger value of init_sigma, above 0.
        seeds: S seeds. The order of a seed does not depend on the others.

    Raises:
        NotAScaleFamilyError: If `init_sigma` does not scale what is drawn.
    """
    exact = replace(parameters, dtype="float64")
    trainings = [Training(replace(exact, init_sigma=each), seed) for each in (sigma, sigma / _RATIO) for seed in seeds]
    weights, gradients = _at_the_start(workload, trainings)
    _check_scales(weights, len(seeds))
    return tuple(_order(name, gradient, len(seeds)) for name, gradient in gradients.items())


def start_order(found: Sequence[Order]) -> float | None:
    """The order that decides when a training leaves its start: the lowest; `None` without any gradient."""
    return min((each.order for each in found if each.order is not None), default=None)


def norm_threshold(workload: Workload[Any], parameters: TrainingParameters, seed: int) -> float | None:
    """sqrt(layer_norm_eps), where the norms change what they do to a small stream and orders change with them.

    `None` for a workload without `layer_norm_eps`, and for trainings whose first gradient does not depend on it.
    """
    epsilon = getattr(parameters, "layer_norm_eps", None)
    if not isinstance(epsilon, float) or epsilon == 0:
        return None
    sigma = math.sqrt(epsilon)
    try:
        pair = [
            parameters.resolve({**parameters.values(), "dtype": "float64", "init_sigma": sigma, "layer_norm_eps": each})
            for each in (epsilon, 4 * epsilon)
        ]
    except UserError:
        return None  # These trainings accept one value only: they have no norm.
    _, gradients = _at_the_start(workload, [Training(each, seed) for each in pair])
    return sigma if any(not torch.allclose(each[0], each[1]) for each in gradients.values()) else None


def _at_the_start(workload: Workload[Any], trainings: Sequence[Training[Any]]) -> tuple[State, State]:
    """The weights (L, ...) by name with which trainings start, and the gradients of their first loss."""
    lanes = Lanes(trainings, torch.device("cpu"))
    weights, buffers, template = starting_state(workload, lanes)
    leaves = {name: value.requires_grad_() for name, value in weights.items()}
    (batch, *_) = workload.batches(lanes, range(1))
    loss = over_lanes(template, workload.loss)(leaves, buffers, batch)
    found = torch.autograd.grad(loss.sum(), list(leaves.values()), materialize_grads=True, allow_unused=True)
    return {name: value.detach() for name, value in weights.items()}, dict(zip(leaves, found, strict=True))


def _check_scales(weights: State, n_seeds: int) -> None:
    """Checks that each parameter starts the same at both values of sigma, or in proportion, and that some do so."""
    n_scaled = 0
    for name, value in weights.items():
        large, small = value[:n_seeds], value[n_seeds:]
        if torch.equal(large, small):
            continue
        if not torch.allclose(large, _RATIO * small, rtol=_ROUNDING, atol=0.0):
            raise NotAScaleFamilyError(f"{name} does not start in proportion to init_sigma")
        n_scaled += 1
    if n_scaled == 0:
        raise NotAScaleFamilyError("no parameter starts in proportion to init_sigma")


def _order(name: str, gradient: Tensor, n_seeds: int) -> Order:
    norm = gradient.flatten(1).norm(dim=1)
    has_one = (norm[:n_seeds] > 0) & (norm[n_seeds:] > 0)
    if not has_one.any():
        return Order(parameter=name, order=None)
    order_S = (norm[:n_seeds] / norm[n_seeds:])[has_one].log() / math.log(_RATIO)
    return Order(
        parameter=name,
        order=float(order_S.quantile(0.5)),
        low=float(order_S.min()),
        high=float(order_S.max()),
    )
