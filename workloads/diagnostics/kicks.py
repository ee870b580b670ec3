"""Adds noise to a stuck training's weights (a kick), to test whether a basin of the loss holds it and how wide it is.

Where attention enters the loss as a product of m > 2 weights, no Hessian shows a way out of 0. After a kick training
goes on: it comes back to a strict local minimum, unless the kick leads out of the basin, and leaves a saddle of any
order. A kick as large as the weights is a new start and proves nothing: only those up to `MOST_TELLING` count.

Products of small factors change the loss by less than L-BFGS's absolute tolerances and than rounding, so the loss is
scaled, and small changes are integrated from the gradient. Use float64.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.first_order import norm_per_lane
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams

KICKS = (0.01, 0.1, 1.0)
"""Sizes relative to the weights, in the order in which they are tried."""
MOST_TELLING = 0.1
"""The largest size after which an escape counts."""
KICK_STEPS = 400
_ROUNDS = 4
"""Descents after a kick, each with the loss scaled by the gradient where the previous one ended."""
_NEAR = 1e-9
"""If a loss has changed by less than this share, its change is computed as an integral of the gradient."""
_NODES = 3
"""Points of the Gauss-Legendre rule: exact for changes of the loss near saddles up to order 6."""
LEAVES_BELOW = 0.95
"""A training has escaped after a kick if its loss falls below this share of the loss before the kick, or from a
negative one by as much of its size."""


@dataclass(frozen=True, slots=True)
class Kicked:
    """Each training's loss before and after the kicks, and the `smallest` of `KICKS` that freed it; NaN if none did,
    which proves nothing where after a telling kick the batch was learned `by_heart`: only its own loss fell."""

    before: Tensor
    after: Tensor
    smallest: Tensor
    by_heart: Tensor

    @property
    def escaped(self) -> Tensor:
        return self.smallest <= MOST_TELLING


def sizes(parameters: State) -> State:
    """The root mean square of each tensor, (n_trainings, 1, ...) by name; for a tensor of zeros that of all the
    training's weights, or 1 if they are all zero."""
    overall = norm_per_lane(parameters) / sum(value[0].numel() for value in parameters.values()) ** 0.5
    overall = torch.where(overall > 0, overall, torch.ones_like(overall))
    tensor_sizes = {}
    for name, value in parameters.items():
        size = value.square().flatten(1).mean(1).sqrt()
        size = torch.where(size > 0, size, overall)
        tensor_sizes[name] = size.view(-1, *[1] * (value.dim() - 1))
    return tensor_sizes


def kick(parameters: State, streams: Streams, relative_size: float) -> State:
    """Adds normal noise from the streams `kick/<name>`, of `relative_size` times the tensors' `sizes`."""
    size = sizes(parameters)
    return {
        name: value + relative_size * size[name] * streams.normal(f"kick/{name}", tuple(value.shape[1:])).to(value)
        for name, value in parameters.items()
    }


def kick_and_train(
    objective: Objective,
    parameters: State,
    streams: Streams,
    n_steps: int = KICK_STEPS,
    judged_by: Objective | None = None,
) -> Kicked:
    """Kicks each training ever harder (`KICKS`) and trains on, until it is free by the loss `judged_by`, by default
    `objective`'s."""
    judge = judged_by or objective
    with torch.no_grad():
        before, batch_before = judge.losses(parameters), objective.losses(parameters)
    after, smallest = before.clone(), torch.full_like(before, torch.nan)
    by_heart = torch.zeros_like(before, dtype=torch.bool)
    held = torch.arange(before.shape[0], device=before.device)
    for relative_size in KICKS:
        ended = {name: value[held] for name, value in parameters.items()}
        kicked = {name: value[held] for name, value in kick(parameters, streams, relative_size).items()}
        point = _descended(objective.select(held), ended, kicked, n_steps)
        with torch.no_grad():
            after[held] = judge.losses(point, held).nan_to_num(nan=torch.inf)
            if relative_size <= MOST_TELLING:
                by_heart[held] |= _is_below(objective.losses(point, held), batch_before[held])
        is_free = _is_below(after[held], before[held])
        smallest[held[is_free]] = relative_size
        held = held[~is_free]
        if not held.numel():
            break
    return Kicked(before, after, smallest, by_heart & ~(smallest <= MOST_TELLING))


def _is_below(after: Tensor, before: Tensor) -> Tensor:
    return after < torch.where(before < 0, 2 - LEAVES_BELOW, LEAVES_BELOW) * before


def _descended(objective: Objective, ended: State, kicked: State, n_steps: int) -> State:
    kick_size = norm_per_lane({name: kicked[name] - value for name, value in ended.items()})
    point = kicked
    for _ in range(_ROUNDS):
        point = _Scaled(objective, point, kick_size).train(n_steps)
    return point


class _Scaled:
    """Loss in units of gradient times kick, weights in units of the kick: L-BFGS has absolute tolerances."""

    def __init__(self, objective: Objective, start: State, size: Tensor) -> None:
        self._objective, self._start = objective, start
        self._size = torch.where(size > 0, size, 1.0)
        self._loss, gradients = objective.evaluate(start, 0)
        steepness = self._size * norm_per_lane(gradients)
        self._unit = torch.where(steepness > 0, steepness, 1.0)

    def train(self, n_steps: int) -> State:
        origin = {name: torch.zeros_like(value) for name, value in self._start.items()}
        ended = self._objective.descended(origin, self._evaluate, "lbfgs", n_steps)
        return {name: self._start[name] + step for name, step in _multiplied(self._size, ended).items()}

    def _evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        selected = torch.arange(self._unit.shape[0], device=self._unit.device) if lanes is None else lanes
        steps = _multiplied(self._size[selected], parameters)
        losses, gradients = self._objective.evaluate(self._weights(steps, selected), step, selected)
        change = losses - self._loss[selected]
        is_near = change.abs() < _NEAR * self._loss[selected].abs()
        if is_near.any():
            near_steps = {name: value[is_near] for name, value in steps.items()}
            change[is_near] = self._change_along(near_steps, selected[is_near])
        unit = self._unit[selected]
        return change / unit, _multiplied(self._size[selected] / unit, gradients)

    def _weights(self, steps: State, lanes: Tensor, share: float = 1.0) -> State:
        return {name: self._start[name][lanes] + share * value for name, value in steps.items()}

    def _change_along(self, steps: State, lanes: Tensor) -> Tensor:
        """Integrates the slopes along `steps`: the difference of two losses would lose the change to rounding."""
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        change = torch.zeros_like(self._unit[lanes])
        for node, weight in zip(nodes, weights, strict=True):
            _, gradients = self._objective.evaluate(self._weights(steps, lanes, (node + 1) / 2), 0, lanes)
            slopes = [(gradients[name] * value).flatten(1).sum(1) for name, value in steps.items()]
            change += weight / 2 * torch.stack(slopes).sum(0)
        return change


def _multiplied(factor: Tensor, state: State) -> State:
    return {name: value * factor.view(-1, *[1] * (value.dim() - 1)) for name, value in state.items()}
