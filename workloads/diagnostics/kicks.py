"""Kicks: is a stuck training held by a basin, and how wide is it?

Where attention enters as a product of m factors, the first m - 1 derivatives vanish at the zero, and for m > 2 no
Hessian shows a way out. A kick adds noise to the weights, of a given size relative to their own; the training then goes
on. From a strict local minimum it comes back, unless the kick leads out of its basin. From a saddle of any order it
leaves, however small the kick, if it is given the time.

So the test proves: from some point within the smallest kick that frees, descent leads down by 5% of the loss. If there
is a basin, it is narrower than that. It does not prove that there is none. A kick of the weights' own size is a new
start and proves nothing, so at most `MOST_TELLING` counts.

Products of small factors change the loss by less than L-BFGS's tolerances, which are absolute, and by less than its
rounding. So the loss is scaled, and small changes of it are integrated from its gradient. Use float64.
Axes: L lane, K lane named.
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
"""Sizes of kicks relative to the weights, in the order in which they are tried."""
MOST_TELLING = 0.1
"""The largest kick whose escape counts."""
KICK_STEPS = 400
"""Iterations of L-BFGS after a kick."""
_ROUNDS = 4
"""Descents after a kick, each scaled by the gradient that the one before has left."""
_NEAR = 1e-9
"""A loss that has changed by less than this share of itself is compared by its gradient."""
_NODES = 3
"""Points of the Gauss-Legendre rule, exact for saddles up to order 6."""
LEAVES_BELOW = 0.95
"""A kicked training has escaped if its loss falls below this share of the loss before the kick."""


@dataclass(frozen=True, slots=True)
class Kicked:
    """L trainings after their kicks.

    Attributes:
        before: (L,) losses where the trainings had ended.
        after: (L,) losses after the last kick of each.
        smallest: (L,) the smallest of `KICKS` that freed each training; NaN if none did.
    """

    before: Tensor
    after: Tensor
    smallest: Tensor

    @property
    def escaped(self) -> Tensor:
        """(L,) bool, whether a kick of at most `MOST_TELLING` frees a training."""
        return self.smallest <= MOST_TELLING


def sizes(parameters: State) -> State:
    """(L, 1, ...) by name, the root mean square of each parameter tensor; of a tensor of zeros, of all weights; 1 if
    these are zero too."""
    of_all = norm_per_lane(parameters) / sum(value[0].numel() for value in parameters.values()) ** 0.5
    of_all = torch.where(of_all > 0, of_all, torch.ones_like(of_all))
    found = {}
    for name, value in parameters.items():
        size = value.square().flatten(1).mean(1).sqrt()
        size = torch.where(size > 0, size, of_all)
        found[name] = size.view(-1, *[1] * (value.dim() - 1))
    return found


def kick(parameters: State, streams: Streams, relative_size: float) -> State:
    """The parameters with noise added, from the streams `kick/<name>`: N(0, 1) times the size of each tensor and
    `relative_size`."""
    size = sizes(parameters)
    return {
        name: value + relative_size * size[name] * streams.normal(f"kick/{name}", tuple(value.shape[1:])).to(value)
        for name, value in parameters.items()
    }


def kick_and_train(objective: Objective, parameters: State, streams: Streams, n_steps: int = KICK_STEPS) -> Kicked:
    """Kicks all parameters by `KICKS` in turn, until one frees the training, and trains on after each.

    Args:
        objective: The training loss.
        parameters: (L, ...) the parameters where the trainings ended.
        streams: The random streams of the trainings.
        n_steps: Iterations of L-BFGS after each kick.
    """
    with torch.no_grad():
        before = objective.losses(parameters)
    after, smallest = before.clone(), torch.full_like(before, torch.nan)
    held = torch.arange(before.shape[0], device=before.device)
    for relative_size in KICKS:
        ended = {name: value[held] for name, value in parameters.items()}
        kicked = {name: value[held] for name, value in kick(parameters, streams, relative_size).items()}
        after[held] = _descended(objective.select(held), ended, kicked, n_steps).nan_to_num(nan=torch.inf)
        is_free = after[held] < LEAVES_BELOW * before[held]
        smallest[held[is_free]] = relative_size
        held = held[~is_free]
        if not held.numel():
            break
    return Kicked(before, after, smallest)


def _descended(objective: Objective, ended: State, kicked: State, n_steps: int) -> Tensor:
    """(L,) losses after L-BFGS from the kicked parameters (L, ...), on the scaled form of the objective."""
    kick_size = norm_per_lane({name: kicked[name] - value for name, value in ended.items()})
    point = kicked
    for _ in range(_ROUNDS):
        point = _Scaled(objective, point, kick_size).train(n_steps)
    with torch.no_grad():
        return objective.losses(point)


class _Scaled:
    """The objective for L-BFGS, which has absolute tolerances and a first step of length 1.

    Weights are measured from where they start, in units of the kick, so that the first step does not lead farther than
    the kick did; the loss is measured from its value there, in units of its gradient.

    Args:
        objective: The losses of L lanes.
        start: (L, ...) the weights that are 0 in the new coordinates.
        size: (L,) the unit of weights.
    """

    def __init__(self, objective: Objective, start: State, size: Tensor) -> None:
        self._objective, self._start = objective, start
        self._size = torch.where(size > 0, size, 1.0)
        self._loss, gradients = objective.evaluate(start, 0)
        steepness = self._size * norm_per_lane(gradients)
        self._unit = torch.where(steepness > 0, steepness, 1.0)

    def train(self, n_steps: int) -> State:
        """The weights (L, ...) after `n_steps` of L-BFGS."""
        origin = {name: torch.zeros_like(value) for name, value in self._start.items()}
        ended = self._objective.descended(origin, self._evaluate, "lbfgs", n_steps)
        return {name: self._start[name] + step for name, step in _times(self._size, ended).items()}

    def _evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        """Implements the protocol `Evaluate`."""
        here = torch.arange(self._unit.shape[0], device=self._unit.device) if lanes is None else lanes
        steps = _times(self._size[here], parameters)
        losses, gradients = self._objective.evaluate(self._weights(steps, here), step, here)
        change = losses - self._loss[here]
        is_near = change.abs() < _NEAR * self._loss[here].abs()
        if is_near.any():
            near = {name: value[is_near] for name, value in steps.items()}
            change[is_near] = self._change_along(near, here[is_near])
        unit = self._unit[here]
        return change / unit, _times(self._size[here] / unit, gradients)

    def _weights(self, steps: State, lanes: Tensor, share: float = 1.0) -> State:
        return {name: self._start[name][lanes] + share * value for name, value in steps.items()}

    def _change_along(self, steps: State, lanes: Tensor) -> Tensor:
        """(K,) the loss's change over steps (K, ...), as the integral of its slope: rounding hides it in the loss."""
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        change = torch.zeros_like(self._unit[lanes])
        for node, weight in zip(nodes, weights, strict=True):
            _, gradients = self._objective.evaluate(self._weights(steps, lanes, (node + 1) / 2), 0, lanes)
            slopes = [(gradients[name] * value).flatten(1).sum(1) for name, value in steps.items()]
            change += weight / 2 * torch.stack(slopes).sum(0)
        return change


def _times(factor: Tensor, state: State) -> State:
    """(L, ...) by name, each lane times its factor (L,)."""
    return {name: value * factor.view(-1, *[1] * (value.dim() - 1)) for name, value in state.items()}
