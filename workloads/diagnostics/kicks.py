"""Kicks: is a training stuck at a zero of the gradient that a push leads out of?

Where attention enters as a product v k q, its zero is a saddle of order three or more: no second derivative shows a way
out. A kick does: N(0, 0.1^2) added to k, q and v, then 120 iterations. A degenerate zero drops below half its level, a
plateau does not. 0.3 is too strong, 0.01 too weak. Axes: L lane. Source: SEEDS A.4.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workloads.diagnostics.objective import Objective
from workloads.engine.lbfgs import Lbfgs
from workloads.engine.optimizers import State
from workloads.engine.streams import Streams

KICK_SIGMA = 0.1
KICK_STEPS = 120
DROPS_BELOW = 0.5
"""Share of the level before, under which a kicked training has left it."""


@dataclass(frozen=True, slots=True)
class Kicked:
    """What a kick did to L trainings.

    Attributes:
        before: (L,) losses where the trainings had ended.
        after: (L,) losses after the kick and the iterations.
        escaped: (L,) bool, whether a training dropped below `DROPS_BELOW` of its loss.
    """

    before: Tensor
    after: Tensor
    escaped: Tensor


def kick(parameters: State, names: Sequence[str], streams: Streams, sigma: float = KICK_SIGMA) -> State:
    """The parameters with N(0, sigma^2) added to those named, from the streams `kick/<name>`."""
    return {
        name: value + sigma * streams.normal(f"kick/{name}", tuple(value.shape[1:])).to(value)
        if name in names
        else value
        for name, value in parameters.items()
    }


def kick_and_train(
    objective: Objective, parameters: State, names: Sequence[str], streams: Streams, n_steps: int = KICK_STEPS
) -> Kicked:
    """Kicks the parameters named, and trains all on by L-BFGS.

    Args:
        objective: What the trainings descended.
        parameters: (L, ...) where they ended.
        names: Keys, queries and values.
        streams: Of the trainings.
        n_steps: Iterations of L-BFGS.
    """
    with torch.no_grad():
        before = objective.losses(parameters)
    learning_rate = torch.ones_like(before)
    kicked = kick(parameters, names, streams)
    after = objective.train_on(kicked, Lbfgs, learning_rate, n_steps)[1].detach()
    return Kicked(before, after, after < DROPS_BELOW * before)
