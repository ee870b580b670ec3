"""The direction in weight space along which a training's loss curves down most: the way out of a saddle point."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch.nn.attention import SDPBackend, sdpa_kernel

from attnsweep.workloads.diagnostics.negative_curvature import smallest_curvature
from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams


@dataclass(frozen=True, kw_only=True, slots=True)
class Saddle:
    """The smallest curvature of the loss at one training's weights, for a step of norm 1; `is_negative` if below 0 by
    more than its error. `weights` has each weight's share of the direction."""

    curvature: float
    is_negative: bool
    weights: Mapping[str, float]

    def steps(self, learning_rate: float) -> float:
        """The steps of gradient descent in which a displacement grows by the factor e, if the curvature is negative."""
        return 1 / (learning_rate * -self.curvature)


def saddle_of(objective: Objective, parameters: State, streams: Streams) -> Saddle | None:
    """Lanczos' method on a pack of one training in float64; `None` if the loss has no second derivatives."""
    try:
        # PyTorch's fused attention has no second derivatives, MATH has.
        with sdpa_kernel(SDPBackend.MATH):
            curvatures = smallest_curvature(objective, parameters, streams)
    except RuntimeError:  # An operation of the user's loss has none either.
        return None
    return Saddle(
        curvature=float(curvatures.smallest[0]),
        is_negative=bool(curvatures.is_negative()[0]),
        weights={name: float(value[0].square().sum()) for name, value in curvatures.direction.items()},
    )
