"""Kicks: does the loss of a stuck training fall when its weights are disturbed?

Where attention enters as a product v k q, all second derivatives in k, q and v vanish at the zero: no Hessian shows a
way out. A kick adds N(0, sigma^2) to every weight; training then continues by L-BFGS. A loss that falls is consistent
with a saddle but does not prove one: for weights of size 1e-3 a kick of 0.1 is a new start, and even a planted strict
minimum passes the test (docs/zeros.md).

All weights are kicked, by 0.1 and, if the loss does not fall, by 0.3; any clear fall counts. The milder test, kicking
only k, q and v by 0.1 and asking for half the loss in 120 iterations, works only if the skip connection lets the rest
of the model learn first. At `init_sigma` 1e-4 without a skip the rest is at its own zero, so k, q and v have no
gradient after the kick; behind a softmax 0.1 is too little (docs/zeros.md). Axes: L lane.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.lbfgs import Lbfgs
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams

KICK_SIGMAS = (0.1, 0.3)
KICK_STEPS = 400
"""Iterations of L-BFGS after a kick."""
LEAVES_BELOW = 0.95
"""A kicked training has escaped if its loss falls below this share of the loss before the kick."""


@dataclass(frozen=True, slots=True)
class Kicked:
    """The losses of L trainings before and after their kicks.

    Attributes:
        before: (L,) losses where the trainings had ended.
        after: (L,) the least loss reached after any kick.
    """

    before: Tensor
    after: Tensor

    @property
    def escaped(self) -> Tensor:
        """(L,) bool, whether the loss fell below `LEAVES_BELOW` of the loss before the kick."""
        return self.after < LEAVES_BELOW * self.before


def kick(parameters: State, streams: Streams, sigma: float) -> State:
    """The parameters with N(0, sigma^2) added, from the streams `kick/<name>`."""
    return {
        name: value + sigma * streams.normal(f"kick/{name}", tuple(value.shape[1:])).to(value)
        for name, value in parameters.items()
    }


def kick_and_train(objective: Objective, parameters: State, streams: Streams, n_steps: int = KICK_STEPS) -> Kicked:
    """Kicks all parameters, by each of `KICK_SIGMAS`, and trains on by L-BFGS.

    Args:
        objective: The training loss.
        parameters: (L, ...) the parameters where the trainings ended.
        streams: The random streams of the trainings.
        n_steps: Iterations of L-BFGS.
    """
    with torch.no_grad():
        before = objective.losses(parameters)
    learning_rate = torch.ones_like(before)
    after = [
        objective.train_on(kick(parameters, streams, sigma), Lbfgs, learning_rate, n_steps)[1].detach()
        for sigma in KICK_SIGMAS
    ]
    return Kicked(before, torch.stack(after).nan_to_num(nan=torch.inf).amin(0))
