"""Predicts, without training, the step at which each training leaves its initial plateau, from the loss near the
initial weights.

Axes: L training, n weight, m node of a quadrature rule.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.outcomes import AT_LEVEL
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.forecast.orders import RATIO, Start, in_float64, scale_with_sigma
from attnsweep.workloads.parameters import TrainingParameters

_STRIDE = 0.5
"""The length of a time step of gradient flow, times the relative rate at which the gradient changes."""
_MOST_STEPS = 100
_NUDGE = 1e-3
_LONGER = 3.0
"""The largest ratio of a time step of gradient flow to the one before."""

Descent = Callable[[Tensor], tuple[Tensor, Tensor]]


def times_until(descent: Descent, rows: Tensor, held: Tensor, level: Tensor) -> NDArray[np.float64]:
    """Returns for each training how long gradient flow from given weights takes until the loss is below a given level.

    The time is infinite if 100 strides (time steps) do not suffice. A stride is a step of Runge and Kutta's
    fourth-order method, over which the gradient changes by about half. So the gradient grows tenfold in about five
    strides, however long that takes.

    Args:
        descent: Returns losses and gradients at weights, one row per training.
        rows: The weights at the start, one row per training.
        held: For each training the loss from which a fall is measured.
        level: For each training the loss to fall below, which is less than `held`.
    """
    loss, gradient = descent(rows)
    nudge = _NUDGE * rows.norm(dim=1) / gradient.norm(dim=1)
    stride = _STRIDE / _rate(gradient, descent(rows - nudge[:, None] * gradient)[1], nudge)
    time, times = torch.zeros_like(loss), torch.full_like(loss, torch.inf)
    for _ in range(_MOST_STEPS):
        rows = _stride(descent, rows, gradient, stride)
        old_loss, old_gradient = loss, gradient
        loss, gradient = descent(rows)
        has_fallen = (loss < level) & times.isinf()
        times = torch.where(has_fallen, time + stride * _part(held - old_loss, held - level, held - loss), times)
        if times.isfinite().all():
            break
        time = time + stride
        next_stride = _STRIDE / _rate(old_gradient, gradient, stride)
        stride = next_stride.clamp(stride / _LONGER, stride * _LONGER)
    return times.numpy()


def _stride(descent: Descent, rows: Tensor, gradient: Tensor, stride: Tensor) -> Tensor:
    step = stride[:, None]
    second = descent(rows - step / 2 * gradient)[1]
    third = descent(rows - step / 2 * second)[1]
    fourth = descent(rows - step * third)[1]
    moved: Tensor = step / 6 * (gradient + 2 * second + 2 * third + fourth)
    return rows - moved


def _rate(before: Tensor, after: Tensor, time: Tensor) -> Tensor:
    """Returns for each training how fast its gradient changes during gradient flow, relative to the gradient's norm."""
    rate: Tensor = (after - before).norm(dim=1) / before.norm(dim=1) / time
    return rate


def _part(before: Tensor, at: Tensor, after: Tensor) -> Tensor:
    """Returns for each training at which fraction of an integration step of gradient flow, from 0 to 1, the loss is
    `at` below a reference loss.

    `before` and `after` are how far the loss is below the reference at the beginning and at the end of the step.
    Between them this fall is taken to grow exponentially, or linearly where it was not positive before.
    """
    exponential = torch.log(at / before) / torch.log(after / before)
    part: Tensor = torch.where(before > 0, exponential, at / after)
    return part.clamp(0.0, 1.0)


_MOST_NODES = 12
_NOTHING = 1e-6
"""A residual of Lanczos' method below this share of the Hessian's size is rounding or a nonlinear part."""
_LONGEST = 2.0**40


def spectrum(product: Callable[[Tensor], Tensor], delta: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns for each training approximate eigenvalues of its Hessian, and the fraction of a given direction's squared
    norm in each eigenspace.

    The result is a Gauss quadrature: nodes and weights.

    `product` multiplies vectors, one row per training, by the Hessian H; `delta` has the directions. The nodes
    approximate eigenvalues of H. The weights are the squared components of the direction, and sum to 1. Lanczos' method
    makes a rule of m nodes from m products. The rule is exact once m is the number of different eigenvalues of H in
    whose eigenspaces the direction has a component. Source: Golub and Meurant, Matrices, Moments and Quadrature, 1994.
    """
    basis, size = [delta / delta.norm(dim=1, keepdim=True)], torch.zeros(len(delta), dtype=delta.dtype)
    matrix = delta.new_zeros(len(delta), _MOST_NODES, _MOST_NODES)
    for node in range(_MOST_NODES):
        image = product(basis[-1])
        matrix[:, node, node] = (image * basis[-1]).sum(1)
        size = size.maximum(image.norm(dim=1))
        # The component along each vector is removed twice, because after the first pass the rounding error may be as
        # large as what is left of a short vector.
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
    fall: NDArray[np.float64], curvature: NDArray[np.float64], growth: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns for each training the first step of gradient descent at which a quadratic loss has fallen by `fall`;
    infinite if it never falls so far.

    With the learning rate eta and the weight decay c, t steps of gradient descent from the point delta change the loss
    to 1/2 delta^t H (1 - eta (H + c))^2t delta, where H is the Hessian. This is a sum over the eigenvalues of H: sum_m
    weights curvature growth^2t / 2.

    Args:
        fall: For each training by how much the loss has to fall, above 0.
        curvature: For each training the eigenvalues of H.
        growth: For each training the factors by which one step multiplies the components of delta along the
            eigenvectors. Their absolute value is at most 1 where the curvature is positive.
        weights: For each training the squared length of each component.
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


_SAME_ORDER = 0.1
"""The largest difference between an order (the gradient's power of init_sigma) and a whole number for a law."""
_MOST_LANES, _MOST_NUMBERS = 256, 2**20
"""The most trainings that are predicted together, and the largest number of weights that they have in all."""
_CLOSER = 1e-3
"""At this share of the start's distance from the point with init_sigma 0, the gradient is taken as linear."""


def predicted_escapes(
    workload: Workload[Any],
    trainings: Sequence[Training[Any]],
    buffers: State | None = None,
    weights: State | None = None,
) -> NDArray[np.float64]:
    """Predicts, without training, the step at which each training leaves its initial plateau.

    `escape_times` defines what leaving is. The step is NaN if no law applies, and infinite if the law says that the
    training never leaves.

    The law holds for plain gradient descent (SGD with a constant learning rate, no momentum, clipping or intervention)
    on a loss that is the same at each step, from a start at which the gradient is proportional to init_sigma or a
    higher power of it: see docs/forecast.md. A prediction depends on the training's parameters and seed alone.

    Args:
        buffers: The buffers of the trainings by name, with trainings as first axis, if they are known.
        weights: Weights that replace those of the start, such as the weights after some steps, by name with trainings
            as first axis. The law then begins at these weights, and steps are counted from there; the loss must still
            fall below the start's loss.
    """
    steps = np.full(len(trainings), np.nan)
    chosen = [lane for lane, training in enumerate(trainings) if _descends_plainly(training.parameters)]
    if not chosen:
        return steps
    try:
        exact = [in_float64(trainings[lane]) for lane in chosen]
        scaled, n_weights = _scaled_by_sigma(workload, exact[0])
    except Exception:  # noqa: BLE001  # A user's code may fail in float64; the training itself must go on.
        return steps
    n_at_once = max(min(_MOST_LANES, _MOST_NUMBERS // n_weights), 1)
    for first in range(0, len(exact), n_at_once):
        part = slice(first, first + n_at_once)
        lanes = torch.tensor(chosen[part])
        states = _selected(buffers, lanes), _selected(weights, lanes)
        steps[chosen[part]] = _NearStart(workload, exact[part], scaled, *states).escapes()
    return steps


def _selected(state: State | None, lanes: Tensor) -> State | None:
    return None if state is None else {name: value[lanes.to(value.device)] for name, value in state.items()}


def _descends_plainly(parameters: TrainingParameters) -> bool:
    plain = (parameters.optimizer, parameters.learning_rate_schedule, parameters.warmup_steps, parameters.momentum)
    is_changed = parameters.gradient_clip_norm is not None or parameters.intervention is not None
    return plain == ("sgd", "constant", 0, 0.0) and not is_changed and bool(parameters.init_sigma)


def _scaled_by_sigma(workload: Workload[Any], training: Training[Any]) -> tuple[list[str], int]:
    """Returns the names of the weights whose initial values are proportional to init_sigma, and the number of all
    weights."""
    sigma = training.parameters.init_sigma
    large, small = (Start(workload, [in_float64(training, init_sigma=sigma / ratio)]) for ratio in (1, RATIO))
    small.gradients()
    return scale_with_sigma(large.weights, small.weights), large.rows.shape[1]


def _orders(large: Tensor, small: Tensor) -> NDArray[np.float64]:
    """Returns for each training the order of its gradient, which is the power of init_sigma to which the gradient is
    proportional.

    Compares the gradients at init_sigma and at a third of it.
    """
    return np.asarray(torch.log(large.norm(dim=1) / small.norm(dim=1)) / math.log(RATIO))


class _NearStart:
    """Predicts when trainings leave their initial plateau, from their losses and gradients near the initial weights."""

    def __init__(
        self,
        workload: Workload[Any],
        trainings: Sequence[Training[Any]],
        scaled: Sequence[str],
        buffers: State | None,
        weights: State | None,
    ) -> None:
        self._workload, self._trainings, self._scaled = workload, trainings, scaled
        self._buffers, self._weights = buffers, weights
        own = Start(workload, trainings, buffers)
        self._start = own if weights is None else own.moved_to(weights)
        self._rows, self._origin = self._start.rows, self._start.scaled(scaled, 0.0)
        self._rate = np.array([training.parameters.learning_rate for training in trainings])
        self._decay = np.array([training.parameters.weight_decay for training in trainings])
        first, gradient = self._start.descent(self._rows)
        third = self._origin + (self._rows - self._origin) / RATIO
        self._orders = _orders(gradient, self._start.descent(third)[1])
        self._zero, self._first = self._start.descent(self._origin)[0].numpy(), first.numpy()
        self._held = np.minimum(self._zero, self._first)
        if weights is not None:
            self._held = np.minimum(*(own.descent(rows)[0].numpy() for rows in (own.rows, own.scaled(scaled, 0.0))))
        self._level = self._held - AT_LEVEL * np.abs(self._held)

    def escapes(self) -> NDArray[np.float64]:
        """Returns the predicted step at which each training leaves its initial plateau; NaN where no prediction is
        possible."""
        steps = np.full(len(self._orders), np.nan)
        if not self._start.is_exact:
            return steps
        order = self._orders.round()
        holds = (abs(self._orders - order) <= _SAME_ORDER) & (self._first <= self._zero + AT_LEVEL * abs(self._zero))
        is_linear, flows = holds & (order == 1), holds & (order > 1) & (self._decay == 0)
        if is_linear.any():
            steps[is_linear] = self._linear()[is_linear]
        if flows.any():
            steps[flows] = self._select(np.flatnonzero(flows))._flow()
        return steps

    def _select(self, lanes: NDArray[np.int64]) -> "_NearStart":
        """Returns a predictor like this one, but for the trainings at the given positions alone."""
        trainings, chosen = [self._trainings[lane] for lane in lanes], torch.from_numpy(lanes)
        states = _selected(self._buffers, chosen), _selected(self._weights, chosen)
        return _NearStart(self._workload, trainings, self._scaled, *states)

    def _linear(self) -> NDArray[np.float64]:
        delta = self._rows - self._origin
        size = delta.norm(dim=1, keepdim=True)

        def product(vectors: Tensor) -> Tensor:
            closer: Tensor = _CLOSER * size
            return self._start.descent(self._origin + closer * vectors)[1] / closer

        nodes, weights = spectrum(product, delta)
        growth = 1 - self._rate[:, None] * (nodes + self._decay[:, None])
        steps = steps_until(self._zero - self._level, nodes, growth, weights * size.numpy() ** 2)
        # The prediction holds only for stable trainings: the learning rate must not be too large for any positive
        # curvature. For others, NaN is returned.
        is_stable = np.where(nodes > 0, np.abs(growth), 0.0).max(1) <= 1
        return np.asarray(np.where(is_stable, steps, np.nan))

    def _flow(self) -> NDArray[np.float64]:
        held, level = torch.from_numpy(self._held), torch.from_numpy(self._level)
        times = times_until(self._start.descent, self._rows, held, level)
        return np.where(np.isfinite(times), np.ceil(times / self._rate), np.nan)
