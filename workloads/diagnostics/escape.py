"""The step at which a training leaves its initial plateau, predicted from its loss near the initial weights.

Two laws hold for plain gradient descent on a loss that is the same at each step, if the gradient at the start is
proportional to a power of init_sigma. If it is the first power, the loss near the point with init_sigma 0 is quadratic,
and its Hessian gives the step. If it is a higher one, the Hessian there shows no way out, and the step is the time of
gradient flow over the learning rate. Axes: L training, n entry of the row, K node of a quadrature.
"""

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
from attnsweep.workloads.engine.functional import loss_and_gradient, over_lanes
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
    """Weights as `rows_Ln`, with the first step's loss and gradient there; if it `is_constant`, the second step's loss
    is the same function. `buffers`: values by name that replace the drawn ones."""

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
        self.is_constant = all(torch.equal(value, second[name]) for name, value in self._batch.items())
        self._take_rows()

    def _take_rows(self) -> None:
        self.rows_Ln = self._layout.rows(self.weights)
        self.loss_L, self.gradient_Ln = self.evaluated_at(self.rows_Ln)

    def moved_to(self, weights: State) -> Self:
        moved = copy(self)
        moved.weights = {name: weights[name].to(value) for name, value in self.weights.items()}
        moved._take_rows()
        return moved

    def without(self, names: Sequence[str]) -> Tensor:
        """The rows with the weights of these names 0."""
        return self._layout.rows(self.weights | {name: torch.zeros_like(self.weights[name]) for name in names})

    def evaluated_at(self, rows_Ln: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and gradient."""
        leaf = rows_Ln.detach().requires_grad_()
        return loss_and_gradient("loss", self._loss(self._layout.views(leaf), self._buffers, self._batch), leaf)


def _proportional_to_sigma(large: State, small: State) -> list[str]:
    """The parameters whose initial values are; none if others change with init_sigma too."""
    names = [name for name, value in large.items() if not torch.equal(value, small[name])]
    are_all = all(torch.allclose(large[name], _RATIO * small[name], rtol=_ROUNDING, atol=0.0) for name in names)
    return names if are_all else []


_GRADIENT_CHANGE = 0.5
"""Within a time step of gradient flow, relative, at the speed of the step before."""
_MAX_TIME_STEPS = 100
_NUDGE = 1e-3
"""The relative change of the weights by which this speed is estimated at the start."""
_MAX_TIME_STEP_RATIO = 3.0
"""Of a time step to the one before."""

LossAndGradient = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Those at rows, (L, n)."""


def _flow_times(
    evaluate: LossAndGradient, rows_Ln: Tensor, plateau_L: Tensor, level_L: Tensor, is_needed_L: Tensor
) -> NDArray[np.float64]:
    """The times at which gradient flow first is below `level_L`, by the method of Runge and Kutta; infinite where it is
    not within `_MAX_TIME_STEPS`. The flow ends once all that are needed are known."""
    loss, gradient = evaluate(rows_Ln)
    nudge = _NUDGE * rows_Ln.norm(dim=1) / gradient.norm(dim=1)
    nudged_gradient = evaluate(rows_Ln - nudge[:, None] * gradient)[1]
    time_step = _GRADIENT_CHANGE / _speed_of_change(gradient, nudged_gradient, nudge)
    time, times = torch.zeros_like(loss), torch.full_like(loss, torch.inf)
    for _ in range(_MAX_TIME_STEPS):
        rows_Ln = _after_time_step(evaluate, rows_Ln, gradient, time_step)
        old_loss, old_gradient = loss, gradient
        loss, gradient = evaluate(rows_Ln)
        has_fallen = (loss < level_L) & times.isinf()
        share = _share_of_time_step(plateau_L - old_loss, plateau_L - level_L, plateau_L - loss)
        times = torch.where(has_fallen, time + time_step * share, times)
        if (times.isfinite() | ~is_needed_L).all():
            break
        time = time + time_step
        next_time_step = _GRADIENT_CHANGE / _speed_of_change(old_gradient, gradient, time_step)
        time_step = next_time_step.clamp(time_step / _MAX_TIME_STEP_RATIO, time_step * _MAX_TIME_STEP_RATIO)
    return times.numpy()


def _after_time_step(evaluate: LossAndGradient, rows_Ln: Tensor, gradient_Ln: Tensor, time_step_L: Tensor) -> Tensor:
    step = time_step_L[:, None]
    second = evaluate(rows_Ln - step / 2 * gradient_Ln)[1]
    third = evaluate(rows_Ln - step / 2 * second)[1]
    fourth = evaluate(rows_Ln - step * third)[1]
    moved: Tensor = step / 6 * (gradient_Ln + 2 * second + 2 * third + fourth)
    return rows_Ln - moved


def _speed_of_change(before_Ln: Tensor, after_Ln: Tensor, time_L: Tensor) -> Tensor:
    speed: Tensor = (after_Ln - before_Ln).norm(dim=1) / before_Ln.norm(dim=1) / time_L
    return speed


def _share_of_time_step(before: Tensor, at: Tensor, after: Tensor) -> Tensor:
    """When in a time step the fall below the plateau reaches `at`: a positive one grows exponentially, others linearly
    from 0."""
    exponential = torch.log(at / before) / torch.log(after / before)
    share: Tensor = torch.where(before > 0, exponential, at / after)
    return share.clamp(0.0, 1.0)


_MAX_NODES = 12
_NEGLIGIBLE = 1e-6
"""A residual below this share of the Hessian's size is rounding or a nonlinear part."""
_MAX_STEPS = 2.0**40


def spectrum(
    times_hessian: Callable[[Tensor], Tensor], delta_Ln: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lanczos' approximation of the Hessian's eigenvalues along `delta_Ln`, and the shares of its square that lie in
    their directions, both (L, K). Source: Golub and Meurant, Matrices, Moments and Quadrature, 1994."""
    basis = [delta_Ln / delta_Ln.norm(dim=1, keepdim=True)]
    hessian_size = torch.zeros(len(delta_Ln), dtype=delta_Ln.dtype)
    matrix = delta_Ln.new_zeros(len(delta_Ln), _MAX_NODES, _MAX_NODES)
    for node in range(_MAX_NODES):
        image = times_hessian(basis[-1])
        matrix[:, node, node] = (image * basis[-1]).sum(1)
        hessian_size = hessian_size.maximum(image.norm(dim=1))
        # Twice: after the first time rounding may be as large as what is left of a short vector.
        for vector in (*basis, *basis):
            image = image - (image * vector).sum(1, keepdim=True) * vector
        length = image.norm(dim=1)
        continues = length > _NEGLIGIBLE * hessian_size
        if node + 1 == _MAX_NODES or not continues.any():
            break
        matrix[:, node, node + 1] = matrix[:, node + 1, node] = length.where(continues, 0.0)
        basis.append(torch.where(continues[:, None], image / length[:, None], 0.0))
    eigenvalues, vectors = torch.linalg.eigh(matrix)
    return eigenvalues.numpy(), (vectors[:, 0] ** 2).numpy()


def steps_until(
    fall_L: NDArray[np.float64],
    curvature_LK: NDArray[np.float64],
    growth_LK: NDArray[np.float64],
    square_LK: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The first step of gradient descent at which a quadratic loss is `fall_L` below that of its stationary point;
    infinite if it is not at step `_MAX_STEPS`.

    With the learning rate eta and the weight decay c, the loss t steps after delta is that of delta = 0 plus 1/2
    delta^T H (1 - eta (H + c))^2t delta: half the sum over K of square curvature growth^2t, where the squares are those
    of delta's components. The step is found by bisection, which takes the loss to stay below once it is: a weight decay
    above the size of a negative curvature can break this.
    """

    def has_fallen(steps: NDArray[np.float64]) -> NDArray[np.bool_]:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            parts = square_LK * curvature_LK * np.abs(growth_LK) ** (2 * steps[:, None])
        return np.asarray(np.nan_to_num(parts, nan=0.0, neginf=-np.inf).sum(1) / 2 <= -fall_L)

    low, high = np.zeros_like(fall_L), np.full_like(fall_L, _MAX_STEPS)
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
    init_sigma 0. NaN where no law holds or gradient flow takes too long, infinite if the quadratic loss never falls.

    Args:
        buffers: (L, ...) by name, the trainings' own if not as drawn at the start.
        weights: (L, ...) by name, those of a later step: steps count from it. The plateau stays that of the start.
    """
    steps = np.full(len(trainings), np.nan)
    chosen = [lane for lane, training in enumerate(trainings) if _descends_plainly(training.parameters)]
    if not chosen:
        return steps
    try:
        exact = [_in_float64(trainings[lane]) for lane in chosen]
        sigma = exact[0].parameters.init_sigma
        large, small = (_Start(workload, [_in_float64(exact[0], init_sigma=sigma / ratio)]) for ratio in (1, _RATIO))
    except Exception:  # noqa: BLE001  # a user's code may fail in float64; the training itself must go on
        return steps
    scaled_names = _proportional_to_sigma(large.weights, small.weights)
    if not scaled_names:
        return steps
    n_at_once = max(min(_MAX_LANES, _MAX_NUMBERS // large.rows_Ln.shape[1]), 1)
    for first in range(0, len(exact), n_at_once):
        part = slice(first, first + n_at_once)
        lanes = torch.tensor(chosen[part])
        start = _Start(workload, exact[part], _selected(buffers, lanes))
        from_weights = _selected(weights, lanes)
        later = start if from_weights is None else start.moved_to(from_weights)
        steps[chosen[part]] = _steps_from(later, start, scaled_names, [each.parameters for each in exact[part]])
    return steps


def _steps_from(
    later: _Start, start: _Start, scaled_names: Sequence[str], parameters: Sequence[TrainingParameters]
) -> NDArray[np.float64]:
    """From `later`, by the law that holds there, to 1% below the plateau of `start`: (L,)."""
    learning_rate = np.array([each.learning_rate for each in parameters])
    decay = np.array([each.weight_decay for each in parameters])
    plateau = torch.minimum(start.loss_L, start.evaluated_at(start.without(scaled_names))[0])
    level = plateau - AT_LEVEL * plateau.abs()
    origin_Ln = later.without(scaled_names)
    loss_at_origin, _ = later.evaluated_at(origin_Ln)
    _, nearer_gradient = later.evaluated_at(origin_Ln + (later.rows_Ln - origin_Ln) / _RATIO)
    power = _powers_of_sigma(later.gradient_Ln, nearer_gradient)
    order = power.round()
    is_near = (later.loss_L <= loss_at_origin + AT_LEVEL * loss_at_origin.abs()).numpy()
    has_law = is_near & (abs(power - order) <= _ORDER_TOLERANCE) & start.is_constant
    # Gradient flow here has no weight decay.
    is_quadratic, is_flat = has_law & (order == 1), has_law & (order > 1) & (decay == 0)
    steps = np.full(len(parameters), np.nan)
    if is_quadratic.any():
        fall = (loss_at_origin - level).numpy()
        steps[is_quadratic] = _quadratic_steps(later, origin_Ln, fall, learning_rate, decay)[is_quadratic]
    if is_flat.any():
        times = _flow_times(later.evaluated_at, later.rows_Ln, plateau, level, torch.from_numpy(is_flat))
        steps[is_flat] = np.where(np.isfinite(times), np.ceil(times / learning_rate), np.nan)[is_flat]
    return steps


def _quadratic_steps(
    later: _Start,
    origin_Ln: Tensor,
    fall: NDArray[np.float64],
    learning_rate: NDArray[np.float64],
    decay: NDArray[np.float64],
) -> NDArray[np.float64]:
    delta_Ln = later.rows_Ln - origin_Ln
    size = delta_Ln.norm(dim=1, keepdim=True)

    def times_hessian(vectors_Ln: Tensor) -> Tensor:
        length: Tensor = _LINEAR_SHARE * size
        return later.evaluated_at(origin_Ln + length * vectors_Ln)[1] / length

    curvature_LK, share_LK = spectrum(times_hessian, delta_Ln)
    growth_LK = 1 - learning_rate[:, None] * (curvature_LK + decay[:, None])
    steps = steps_until(fall, curvature_LK, growth_LK, share_LK * size.numpy() ** 2)
    # The learning rate may not be too large for any positive curvature.
    is_stable = np.where(curvature_LK > 0, np.abs(growth_LK), 0.0).max(1) <= 1
    return np.asarray(np.where(is_stable, steps, np.nan))


def _selected(state: State | None, lanes: Tensor) -> State | None:
    return None if state is None else {name: value[lanes.to(value.device)] for name, value in state.items()}


def _descends_plainly(parameters: TrainingParameters) -> bool:
    plain = (parameters.optimizer, parameters.learning_rate_schedule, parameters.warmup_steps, parameters.momentum)
    is_changed = parameters.gradient_clip_norm is not None or parameters.intervention is not None
    return plain == ("sgd", "constant", 0, 0.0) and not is_changed and bool(parameters.init_sigma)


def _powers_of_sigma(large_Ln: Tensor, small_Ln: Tensor) -> NDArray[np.float64]:
    """In gradients, from those at two of its values."""
    return np.asarray(torch.log(large_Ln.norm(dim=1) / small_Ln.norm(dim=1)) / math.log(_RATIO))
