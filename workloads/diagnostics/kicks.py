"""Kicks: does the loss of a stuck training fall when its weights are disturbed?

Where attention enters as a product v k q, all second derivatives in k, q and v vanish at the zero: no Hessian shows a
way out. A kick adds N(0, sigma^2) to every weight and trains on by L-BFGS. A training that then falls is consistent
with a saddle and proves none: on weights of 1e-3 a kick of 0.1 is a new start, and a planted strict minimum passes
(docs/zeros.md).

Kicking k, q and v alone by 0.1 and asking for half the loss in 120 iterations works where the skip lets the rest of the
model learn first. At `init_sigma` 1e-4 without a skip the rest lies at its own zero, and k, q and v have no gradient
after the kick; behind a softmax 0.1 is too little (docs/zeros.md). So all
weights are kicked, by 0.1 and, if that does not do, by 0.3, and any clear fall counts. Axes: L lane.
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
"""Share of the loss before, under which a kicked training has left it."""


@dataclass(frozen=True, slots=True)
class Kicked:
    """What kicks did to L trainings.

    Attributes:
        before: (L,) losses where the trainings had ended.
        after: (L,) the least loss that a kick and the iterations led to.
    """

    before: Tensor
    after: Tensor

    @property
    def escaped(self) -> Tensor:
        """(L,) bool, whether a training fell below `LEAVES_BELOW` of its loss."""
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
        objective: What the trainings descended.
        parameters: (L, ...) where they ended.
        streams: Of the trainings.
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
