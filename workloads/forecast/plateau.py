"""Orders of the gradient at the longest plateau of a pilot, once its start is left.

Axes: L lane (the S trainings at sigma, then the same at sigma / 3), S seed, C checkpoint, B block of parameters.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.forecast.orders import Order
from attnsweep.workloads.forecast.start import RATIO, Start, in_float64, scale_with_sigma
from attnsweep.workloads.parameters import TrainingParameters

_SPACING = 1.25
"""Ratio of the steps of two checkpoints."""
_STILL_SMALL = 0.25
"""A block is small while the exponent of its size in init_sigma is so near to 1."""
_BATCHES = 8
"""Of which the mean gradient is taken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plateau:
    """The longest plateau: the steps during which the same blocks are small, others having grown.

    Attributes:
        first, last: The first step of any seed in it, and the last.
        n_seeds: The seeds that were seen in it.
        orders: Of each small block: the mean over a seed's checkpoints in it, then the median over seeds.
    """

    first: int
    last: int
    n_seeds: int
    orders: tuple[Order, ...]


def longest_plateau(
    workload: Workload[Any], parameters: TrainingParameters, sigma: float, seeds: Sequence[int], seconds: float
) -> Plateau | None:
    """Trains the same draws at sigma and at sigma / 3, and compares them at the same steps.

    Args:
        workload: Any whose trainings start from `init_sigma` times a normal draw.
        parameters: Those of the trainings; their `init_sigma` is replaced, and their type is float64.
        sigma: The larger value of init_sigma.
        seeds: S seeds.
        seconds: Of CPU, after which the pilot ends.

    Returns:
        `None` if no plateau with small blocks comes after the start.

    Raises:
        NotAScaleFamilyError: If `init_sigma` does not scale what is drawn.
    """
    trainings = [
        in_float64(Training(parameters, seed), init_sigma=each, stop_when_solved=False)
        for each in (sigma, sigma / RATIO)
        for seed in seeds
    ]
    start = Start(workload, trainings)
    halves = ({name: value[half] for name, value in start.weights.items()} for half in _halves(len(seeds)))
    names = scale_with_sigma(*halves)
    pack, until = Pack(workload, trainings), time.process_time() + seconds
    steps, sizes, gradients = [], [], []
    for step in _checkpoints(parameters.n_steps):
        if steps and time.process_time() > until:
            break
        if pack.advance(step - (steps[-1] if steps else 0)):
            break
        state = pack.final_state(np.arange(len(trainings)))[1]
        weights = {name: state[name] for name in start.weights}
        steps.append(step)
        sizes.append(_exponents(weights, names, len(seeds)))
        gradients.append(_exponents(start.gradients_at(weights, _BATCHES), names, len(seeds)))
    if not steps:
        return None
    return plateau_of(names, np.array(steps), np.stack(sizes), np.stack(gradients))


def plateau_of(
    names: Sequence[str], steps: NDArray[np.int64], sizes: NDArray[np.float64], gradients: NDArray[np.float64]
) -> Plateau | None:
    """The longest plateau among checkpoints; `None` if no block is small after others have grown.

    A checkpoint lasts until the next one, and the seeds' times add up.

    Args:
        names: B blocks, all of which start in proportion to init_sigma.
        steps: (C,) of the checkpoints.
        sizes: (C, S, B) exponents of the weights' size in init_sigma.
        gradients: (C, S, B) those of the gradients.
    """
    small = np.abs(sizes - 1) <= _STILL_SMALL
    lasts = np.diff(steps, append=steps[-1])
    time_of: dict[tuple[bool, ...], int] = {}
    for at, seed in np.ndindex(small.shape[:2]):
        key = tuple(map(bool, small[at, seed]))
        if any(key) and not all(key):
            time_of[key] = time_of.get(key, 0) + int(lasts[at])
    if not any(time_of.values()):
        return None
    longest = max(time_of, key=lambda key: time_of[key])
    is_in = (small == longest).all(2)
    seen = np.flatnonzero(is_in.any(0))
    blocks = np.flatnonzero(longest)
    order_SB = np.array([gradients[is_in[:, seed], seed][:, blocks].mean(0) for seed in seen])
    span = steps[is_in.any(1)]
    return Plateau(
        first=int(span[0]),
        last=int(span[-1]),
        n_seeds=len(seen),
        orders=tuple(_order(names[block], order_SB[:, at]) for at, block in enumerate(blocks)),
    )


def _order(name: str, order_S: NDArray[np.float64]) -> Order:
    if not np.isfinite(order_S).all():
        return Order(parameter=name, order=None)
    return Order(parameter=name, order=float(np.median(order_S)), low=float(order_S.min()), high=float(order_S.max()))


def _checkpoints(n_steps: int) -> list[int]:
    n_points = int(math.log(max(n_steps, 2)) / math.log(_SPACING)) + 2
    return [int(step) for step in np.unique(np.geomspace(1, n_steps, n_points).astype(int)) if step < n_steps]


def _halves(n_seeds: int) -> tuple[slice, slice]:
    return slice(None, n_seeds), slice(n_seeds, None)


def _exponents(values: State, names: Sequence[str], n_seeds: int) -> NDArray[np.float64]:
    """(S, B) the exponents in init_sigma of the norms of some blocks (L, ...); not finite where a norm is 0."""
    norms = np.stack([values[name].flatten(1).norm(dim=1).numpy(force=True) for name in names], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        large, small = (np.log(norms[half]) for half in _halves(n_seeds))
        return np.asarray((large - small) / math.log(RATIO))
