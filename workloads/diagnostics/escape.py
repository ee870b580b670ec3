"""The step at which a training leaves its initial plateau, predicted from its loss near the initial weights."""

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.engine.construction import starting_state
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.functional import descent, over_lanes
from attnsweep.workloads.engine.layout import Layout, in_type
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.outcomes import AT_LEVEL
from attnsweep.workloads.parameters import TrainingParameters

_RATIO = 3.0
"""Of the two values of init_sigma at which starts are compared."""
_ROUNDING = 1e-12
"""The relative tolerance of proportional initial values."""


def _in_float64(training: Training[Any], **changed: Any) -> Training[Any]:
    return replace(training, parameters=replace(training.parameters, dtype="float64", float32_state=False, **changed))


class _Start:
    """The initial weights, and the first step's loss as a function of them; if it `is_exact`, the second step's loss is
    the same function."""

    def __init__(
        self, workload: Workload[Any], trainings: Sequence[Training[Any]], buffers: State | None = None
    ) -> None:
        lanes = Lanes(trainings, torch.device("cpu"))
        self.weights, drawn, template = starting_state(workload, lanes)
        # `buffers` may be a final state: only what the workload draws is taken from it.
        self._buffers = drawn | {
            name: value.to(lanes.device) for name, value in in_type(buffers or {}, lanes.dtype).items() if name in drawn
        }
        self._loss = over_lanes(template, workload.loss)
        self._layout = Layout(self.weights)
        (self._batch, *_) = workload.batches(lanes, range(1))
        (second, *_) = workload.batches(lanes, range(1, 2))
        self.is_exact = all(torch.equal(value, second[name]) for name, value in self._batch.items())

    def moved_to(self, weights: State) -> Self:
        moved = copy(self)
        moved.weights = {name: weights[name].to(value) for name, value in self.weights.items()}
        return moved

    @property
    def rows(self) -> Tensor:
        return self.scaled((), 1.0)

    def scaled(self, names: Sequence[str], factor: float) -> Tensor:
        return self._layout.rows(self.weights | {name: factor * self.weights[name] for name in names})

    def descent(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        leaf = rows.detach().requires_grad_()
        return descent("loss", self._loss(self._layout.views(leaf), self._buffers, self._batch), leaf)


def _proportional_to_sigma(large: State, small: State) -> list[str]:
    names = []
    for name, value in large.items():
        if torch.equal(value, small[name]):
            continue
        if not torch.allclose(value, _RATIO * small[name], rtol=_ROUNDING, atol=0.0):
            raise ValueError(f"the initial values of parameter {name} are not proportional to init_sigma")
        names.append(name)
    if not names:
        raise ValueError("no parameter has initial values that are proportional to init_sigma")
    return names


_STRIDE = 0.5
"""A time step of gradient flow, times the relative rate at which the gradient changes."""
_MAX_STRIDES = 100
_NUDGE = 1e-3
"""The relative change of the weights by which this rate is estimated at the start."""
_MAX_STRIDE_RATIO = 3.0
"""Of a time step to the one before."""

Descent = Callable[[Tensor], tuple[Tensor, Tensor]]


def _times_until(descent: Descent, rows: Tensor, held: Tensor, level: Tensor, needed: Tensor) -> NDArray[np.float64]:
    """The times at which gradient flow first is below `level`, by the method of Runge and Kutta; infinite where it is
    not within `_MAX_STRIDES`. `held` is the loss of the plateau; the flow ends once all that are `needed` are known."""
    loss, gradient = descent(rows)
    nudge = _NUDGE * rows.norm(dim=1) / gradient.norm(dim=1)
    stride = _STRIDE / _rate(gradient, descent(rows - nudge[:, None] * gradient)[1], nudge)
    time, times = torch.zeros_like(loss), torch.full_like(loss, torch.inf)
    for _ in range(_MAX_STRIDES):
        rows = _stride(descent, rows, gradient, stride)
        old_loss, old_gradient = loss, gradient
        loss, gradient = descent(rows)
        has_fallen = (loss < level) & times.isinf()
        share = _share_of_stride(held - old_loss, held - level, held - loss)
        times = torch.where(has_fallen, time + stride * share, times)
        if (times.isfinite() | ~needed).all():
            break
        time = time + stride
        next_stride = _STRIDE / _rate(old_gradient, gradient, stride)
        stride = next_stride.clamp(stride / _MAX_STRIDE_RATIO, stride * _MAX_STRIDE_RATIO)
    return times.numpy()


def _stride(descent: Descent, rows: Tensor, gradient: Tensor, stride: Tensor) -> Tensor:
    step = stride[:, None]
    second = descent(rows - step / 2 * gradient)[1]
    third = descent(rows - step / 2 * second)[1]
    fourth = descent(rows - step * third)[1]
    moved: Tensor = step / 6 * (gradient + 2 * second + 2 * third + fourth)
    return rows - moved


def _rate(before: Tensor, after: Tensor, time: Tensor) -> Tensor:
    rate: Tensor = (after - before).norm(dim=1) / before.norm(dim=1) / time
    return rate


def _share_of_stride(before: Tensor, at: Tensor, after: Tensor) -> Tensor:
    """When in a time step the fall below the plateau, which grows exponentially if it is positive, reaches `at`."""
    exponential = torch.log(at / before) / torch.log(after / before)
    share: Tensor = torch.where(before > 0, exponential, at / after)
    return share.clamp(0.0, 1.0)


_MAX_NODES = 12
_NEGLIGIBLE = 1e-6
"""A residual below this share of the Hessian's size is rounding or a nonlinear part."""
_MAX_STEPS = 2.0**40


def spectrum(product: Callable[[Tensor], Tensor], delta: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights of a Gauss quadrature by Lanczos' method, (n_trainings, n_nodes): eigenvalues of the Hessian,
    which `product` applies to a row per training, and squared components of the unit vector along `delta`. Source:
    Golub and Meurant, Matrices, Moments and Quadrature, 1994."""
    basis, size = [delta / delta.norm(dim=1, keepdim=True)], torch.zeros(len(delta), dtype=delta.dtype)
    matrix = delta.new_zeros(len(delta), _MAX_NODES, _MAX_NODES)
    for node in range(_MAX_NODES):
        image = product(basis[-1])
        matrix[:, node, node] = (image * basis[-1]).sum(1)
        size = size.maximum(image.norm(dim=1))
        # Twice: after the first time rounding may be as large as what is left of a short vector.
        for vector in (*basis, *basis):
            image = image - (image * vector).sum(1, keepdim=True) * vector
        length = image.norm(dim=1)
        continues = length > _NEGLIGIBLE * size
        if node + 1 == _MAX_NODES or not continues.any():
            break
        matrix[:, node, node + 1] = matrix[:, node + 1, node] = length.where(continues, 0.0)
        basis.append(torch.where(continues[:, None], image / length[:, None], 0.0))
    nodes, vectors = torch.linalg.eigh(matrix)
    return nodes.numpy(), (vectors[:, 0] ** 2).numpy()


def steps_until(
    fall: NDArray[np.float64], curvature: NDArray[np.float64], growth: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The first step of gradient descent at which a quadratic loss is `fall` below that of its stationary point,
    (n_trainings,); infinite if never. The other arguments are (n_trainings, n_nodes).

    With the learning rate eta and the weight decay c, the loss after t steps from delta is that of delta = 0 plus 1/2
    delta^T H (1 - eta (H + c))^2t delta: the sum over the nodes of weights curvature growth^2t / 2.
    """

    def has_fallen(steps: NDArray[np.float64]) -> NDArray[np.bool_]:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            parts = weights * curvature * np.abs(growth) ** (2 * steps[:, None])
        return np.asarray(np.nan_to_num(parts, nan=0.0, neginf=-np.inf).sum(1) / 2 <= -fall)

    low, high = np.zeros_like(fall), np.full_like(fall, _MAX_STEPS)
    falls = has_fallen(high)
    while (high - low).max() > 1:
        middle = np.floor((low + high) / 2)
        fallen = has_fallen(middle)
        low, high = np.where(fallen, low, middle), np.where(fallen, middle, high)
    return np.where(falls, np.where(has_fallen(low), low, high), np.inf)


_ORDER_TOLERANCE = 0.1
"""How far the power of init_sigma in the gradient may be from a whole number."""
_MAX_LANES, _MAX_NUMBERS = 256, 2**20
"""Predicted together: trainings, and weights of all of them."""
_LINEAR_SHARE = 1e-3
"""At this share of the start's distance from the point with init_sigma 0, the gradient is taken as linear."""


def predicted_escapes(
    workload: Workload[Any],
    trainings: Sequence[Training[Any]],
    buffers: State | None = None,
    weights: State | None = None,
) -> NDArray[np.float64]:
    """The step at which each training's loss falls 1% below its plateau: the lower of the losses at its start and at
    init_sigma 0. NaN without a law, infinite if it says never.

    The law holds for plain gradient descent on a loss that is the same at each step, from a start at which the gradient
    is proportional to init_sigma or a higher power of it. With `weights` after some steps it counts from them; the
    plateau stays that of the start.
    """
    steps = np.full(len(trainings), np.nan)
    chosen = [lane for lane, training in enumerate(trainings) if _descends_plainly(training.parameters)]
    if not chosen:
        return steps
    try:
        exact = [_in_float64(trainings[lane]) for lane in chosen]
        scaled, n_weights = _scaled_by_sigma(workload, exact[0])
    except Exception:  # noqa: BLE001  # a user's code may fail in float64; the training itself must go on
        return steps
    n_at_once = max(min(_MAX_LANES, _MAX_NUMBERS // n_weights), 1)
    for first in range(0, len(exact), n_at_once):
        part = slice(first, first + n_at_once)
        lanes = torch.tensor(chosen[part])
        states = _selected(buffers, lanes), _selected(weights, lanes)
        steps[chosen[part]] = _escapes(workload, exact[part], scaled, *states)
    return steps


def _escapes(
    workload: Workload[Any],
    trainings: Sequence[Training[Any]],
    scaled: Sequence[str],
    buffers: State | None,
    weights: State | None,
) -> NDArray[np.float64]:
    own = _Start(workload, trainings, buffers)
    start = own if weights is None else own.moved_to(weights)
    rows, origin = start.rows, start.scaled(scaled, 0.0)
    rate, decay = (
        np.array([getattr(training.parameters, name) for training in trainings])
        for name in ("learning_rate", "weight_decay")
    )
    first, gradient = start.descent(rows)
    orders = _orders(gradient, start.descent(origin + (rows - origin) / _RATIO)[1])
    zero = start.descent(origin)[0]
    held = torch.minimum(zero, first)
    if weights is not None:
        held = torch.minimum(*(own.descent(each)[0] for each in (own.rows, own.scaled(scaled, 0.0))))
    level = held - AT_LEVEL * held.abs()
    order = orders.round()
    has_order = abs(orders - order) <= _ORDER_TOLERANCE
    is_near = (first <= zero + AT_LEVEL * zero.abs()).numpy() & has_order & start.is_exact
    is_linear, flows = is_near & (order == 1), is_near & (order > 1) & (decay == 0)
    steps = np.full(len(trainings), np.nan)
    if is_linear.any():
        steps[is_linear] = _linear(start, origin, (zero - level).numpy(), rate, decay)[is_linear]
    if flows.any():
        times = _times_until(start.descent, rows, held, level, torch.from_numpy(flows))
        steps[flows] = np.where(np.isfinite(times), np.ceil(times / rate), np.nan)[flows]
    return steps


def _linear(
    start: _Start, origin: Tensor, fall: NDArray[np.float64], rate: NDArray[np.float64], decay: NDArray[np.float64]
) -> NDArray[np.float64]:
    delta = start.rows - origin
    size = delta.norm(dim=1, keepdim=True)

    def product(vectors: Tensor) -> Tensor:
        length: Tensor = _LINEAR_SHARE * size
        return start.descent(origin + length * vectors)[1] / length

    nodes, weights = spectrum(product, delta)
    growth = 1 - rate[:, None] * (nodes + decay[:, None])
    steps = steps_until(fall, nodes, growth, weights * size.numpy() ** 2)
    # The learning rate may not be too large for any positive curvature.
    is_stable = np.where(nodes > 0, np.abs(growth), 0.0).max(1) <= 1
    return np.asarray(np.where(is_stable, steps, np.nan))


def _selected(state: State | None, lanes: Tensor) -> State | None:
    return None if state is None else {name: value[lanes.to(value.device)] for name, value in state.items()}


def _descends_plainly(parameters: TrainingParameters) -> bool:
    plain = (parameters.optimizer, parameters.learning_rate_schedule, parameters.warmup_steps, parameters.momentum)
    is_changed = parameters.gradient_clip_norm is not None or parameters.intervention is not None
    return plain == ("sgd", "constant", 0, 0.0) and not is_changed and bool(parameters.init_sigma)


def _scaled_by_sigma(workload: Workload[Any], training: Training[Any]) -> tuple[list[str], int]:
    sigma = training.parameters.init_sigma
    large, small = (_Start(workload, [_in_float64(training, init_sigma=sigma / ratio)]) for ratio in (1, _RATIO))
    small.descent(small.rows)
    return _proportional_to_sigma(large.weights, small.weights), large.rows.shape[1]


def _orders(large: Tensor, small: Tensor) -> NDArray[np.float64]:
    """The powers of init_sigma in gradients, from those at two of its values."""
    return np.asarray(torch.log(large.norm(dim=1) / small.norm(dim=1)) / math.log(_RATIO))
