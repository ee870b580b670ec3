"""Measures the order of the first gradient of each parameter: the power of init_sigma (sigma) to which the gradient is
proportional.

A parameter here is a tensor of the module. Axes: S seed.
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from attnsweep.workloads.engine.construction import starting_state
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.functional import descent, over_lanes
from attnsweep.workloads.engine.layout import Layout, in_type
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import TrainingParameters

RATIO = 3.0
"""The ratio of the two values of init_sigma at which the start of a training is compared to find the gradient's power
of init_sigma."""
_ROUNDING = 1e-12
"""Two random draws count as the same if their relative difference is at most this."""


class NotAScaleFamilyError(Exception):
    """Raised if the initial weights do not scale with init_sigma, their standard deviation. Each weight must be
    proportional to init_sigma or not depend on it, at least one must be proportional, and init_sigma must be positive.
    """


def in_float64(training: Training[Any], **changed: Any) -> Training[Any]:
    return replace(training, parameters=replace(training.parameters, dtype="float64", float32_state=False, **changed))


class Start:
    """The initial weights of trainings, and the loss of their first step as a function of the weights.

    Args:
        buffers: The buffers of the trainings by name, with trainings as first axis, if they are known; tensors that are
            no buffers are ignored. By default the workload draws them.

    Attributes:
        weights: The weights at the start by name, with trainings as first axis.
        is_exact: Whether the second step has the same batch as the first, so that the loss is the same at each step.
    """

    def __init__(
        self, workload: Workload[Any], trainings: Sequence[Training[Any]], buffers: State | None = None
    ) -> None:
        lanes = Lanes(trainings, torch.device("cpu"))
        self.weights, drawn, template = starting_state(workload, lanes)
        # `buffers` may be the final state of a training, which also contains its final weights. These weights are
        # ignored, because only the weights at the start matter here.
        self._buffers = drawn | {
            name: value.to(lanes.device) for name, value in in_type(buffers or {}, lanes.dtype).items() if name in drawn
        }
        self._loss = over_lanes(template, workload.loss)
        self._layout = Layout(self.weights)
        (self._batch, *_) = workload.batches(lanes, range(1))
        (second, *_) = workload.batches(lanes, range(1, 2))
        self.is_exact = all(torch.equal(value, second[name]) for name, value in self._batch.items())

    def moved_to(self, weights: State) -> Self:
        """Returns a copy with other initial weights, given by name with trainings as first axis. The copy computes the
        loss of the first step on the same batch as the original."""
        moved = copy(self)
        moved.weights = {name: weights[name].to(value) for name, value in self.weights.items()}
        return moved

    @property
    def rows(self) -> Tensor:
        return self._layout.rows(self.weights)

    def scaled(self, names: Sequence[str], factor: float) -> Tensor:
        """Returns the initial weights, one row per training, in which the weights listed in `names` are multiplied by
        `factor`."""
        return self._layout.rows(self.weights | {name: factor * self.weights[name] for name in names})

    def descent(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Returns each training's loss and gradient at the first step. The weights are those in `rows`, one row per
        training."""
        leaf = rows.detach().requires_grad_()
        return descent("loss", self._loss(self._layout.views(leaf), self._buffers, self._batch), leaf)

    def gradients(self) -> State:
        return self._layout.views(self.descent(self.rows)[1])


def scale_with_sigma(large: State, small: State) -> list[str]:
    """Returns the names of the weights whose initial values are proportional to init_sigma.

    The other weights start the same at each value of init_sigma.

    Args:
        large, small: The weights at the start for one value of init_sigma and for a third of it, by name, with
            trainings as first axis.

    Raises:
        NotAScaleFamilyError: If a weight is neither proportional to init_sigma nor the same at both values, or if no
            weight is proportional to it.
    """
    names = []
    for name, value in large.items():
        if torch.equal(value, small[name]):
            continue
        if not torch.allclose(value, RATIO * small[name], rtol=_ROUNDING, atol=0.0):
            raise NotAScaleFamilyError(f"the initial values of parameter {name} are not proportional to init_sigma")
        names.append(name)
    if not names:
        raise NotAScaleFamilyError("no parameter has initial values that are proportional to init_sigma")
    return names


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """The order of one parameter's first gradient, which is the power of init_sigma to which the gradient is
    proportional.

    Attributes:
        order: The median over seeds of p = log(|g(sigma)| / |g(sigma / 3)|) / log 3 for the gradient g; `None` if all
            gradients are 0.
        low, high: The smallest and the largest p of all seeds.
    """

    parameter: str
    order: float | None
    low: float | None = None
    high: float | None = None


def orders(
    workload: Workload[Any], parameters: TrainingParameters, sigma: float, seeds: Sequence[int]
) -> tuple[Order, ...]:
    """Measures in float64, for each parameter, the order of its first gradient: the power of init_sigma (sigma) to
    which it is proportional.

    The gradients at sigma and at sigma / 3 are compared.

    Raises:
        NotAScaleFamilyError: If `init_sigma` does not scale the random weights.
    """
    large, small = (
        Start(workload, [in_float64(Training(parameters, seed), init_sigma=scale) for seed in seeds])
        for scale in (sigma, sigma / RATIO)
    )
    scale_with_sigma(large.weights, small.weights)
    below = small.gradients()
    return tuple(order_of(name, gradient, below[name]) for name, gradient in large.gradients().items())


def start_order(parameter_orders: Sequence[Order]) -> float | None:
    """Returns the lowest order (power of init_sigma) of all gradients; `None` if all gradients are 0. The lowest order
    decides when a training leaves its initial plateau."""
    return min((order.order for order in parameter_orders if order.order is not None), default=None)


def norm_threshold(workload: Workload[Any], parameters: TrainingParameters, seed: int) -> float | None:
    """Returns the standard deviation of the initial weights (init_sigma) below which a LayerNorm hardly normalizes its
    input: sqrt(layer_norm_eps).

    A LayerNorm passes on such a small input nearly in proportion. So above this value, gradients are proportional to
    other powers of init_sigma than below it. `None` for a workload without `layer_norm_eps`, and for trainings whose
    first gradient does not depend on it.
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
        # The model has no LayerNorm, so it refuses a changed `layer_norm_eps`. Without LayerNorm, there is no
        # init_sigma below which LayerNorm hardly normalizes its input.
        return None
    gradients = Start(workload, [Training(member, seed) for member in pair]).gradients()
    return sigma if any(not torch.allclose(pair_g[0], pair_g[1]) for pair_g in gradients.values()) else None


def order_of(name: str, large: Tensor, small: Tensor) -> Order:
    above, below = (gradient.flatten(1).norm(dim=1) for gradient in (large, small))
    has_gradient = (above > 0) & (below > 0)
    if not has_gradient.any():
        return Order(parameter=name, order=None)
    order_S = (above / below)[has_gradient].log() / math.log(RATIO)
    return Order(
        parameter=name, order=float(order_S.quantile(0.5)), low=float(order_S.min()), high=float(order_S.max())
    )
