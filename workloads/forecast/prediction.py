"""Predicts the step at which each training leaves its start from a law of the loss near the start, without training.

Axes: L lane, n weight, m node.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.diagnostics.outcomes import AT_LEVEL
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.forecast.flow import times_until
from attnsweep.workloads.forecast.linear import spectrum, steps_until
from attnsweep.workloads.forecast.start import RATIO, Start, in_float64, scale_with_sigma
from attnsweep.workloads.parameters import TrainingParameters

_SAME_ORDER = 0.1
"""The largest difference between an order and a whole number at which a law is used."""
_MOST_LANES, _MOST_NUMBERS = 256, 2**20
"""The most trainings that are predicted together, and the most weights that they have in all."""
_CLOSER = 1e-3
"""At this share of the start's distance from the origin, the gradient is taken as linear."""


def predicted_escapes(
    workload: Workload[Any],
    trainings: Sequence[Training[Any]],
    buffers: State | None = None,
    weights: State | None = None,
) -> NDArray[np.float64]:
    """Predicts without training the step at which each training leaves its start, (L,), as `escape_times` defines it.

    The step is NaN without a law, and infinite where the law says that the start is never left.

    The law holds for plain gradient descent (SGD with a constant learning rate, no momentum, clipping or intervention)
    on a loss that is the same at each step, from a start of order 1 or more: see docs/forecast.md. A prediction depends
    on the training's parameters and seed alone.

    Args:
        workload: The problem.
        trainings: The trainings, of one shape.
        buffers: The buffers of the trainings, (L, ...) by name, if they are known.
        weights: Weights (L, ...) by name that replace the start's, such as the weights after some steps. The law then
            begins at these weights, and steps are counted from there; the loss must still fall below the start's loss.
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
    """Returns the names of the weights whose start is proportional to init_sigma, and the number of all weights."""
    sigma = training.parameters.init_sigma
    large, small = (Start(workload, [in_float64(training, init_sigma=sigma / ratio)]) for ratio in (1, RATIO))
    small.gradients()
    return scale_with_sigma(large.weights, small.weights), large.rows.shape[1]


def _orders(large: Tensor, small: Tensor) -> NDArray[np.float64]:
    """Returns the order (power of sigma) of each gradient, (L,), from the gradients (L, n) at sigma and sigma / 3."""
    return np.asarray(torch.log(large.norm(dim=1) / small.norm(dim=1)) / math.log(RATIO))


class _NearStart:
    """The losses and gradients of L trainings near the point from which they would start if init_sigma were 0."""

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
        """Returns the predicted step at which each training leaves its start, (L,); NaN where no law applies."""
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
        """Selects some trainings, so that the costly gradient flow is followed only for the trainings that need it."""
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
        # The law needs a stable training: the learning rate must not be too large for a positive curvature.
        is_stable = np.where(nodes > 0, np.abs(growth), 0.0).max(1) <= 1
        return np.asarray(np.where(is_stable, steps, np.nan))

    def _flow(self) -> NDArray[np.float64]:
        held, level = torch.from_numpy(self._held), torch.from_numpy(self._level)
        times = times_until(self._start.descent, self._rows, held, level)
        return np.where(np.isfinite(times), np.ceil(times / self._rate), np.nan)
