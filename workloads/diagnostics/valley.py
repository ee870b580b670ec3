"""The valley at infinity of system P, and the reset that shows that a training is held by this valley alone.

For v = alpha (I - P) + beta P with P = 11^t/N the best q reaches the level ((N-1)/N) (1-rho)^2 / ((N-1) + M rho^2),
rho = beta/alpha. The level is 0 at rho = 1, and falls towards (1 - 1/N)/M as rho -> -infinity. A barrier separates
these two regions, so a training below the level 1/N with alpha beta < 0 never solves. The reset vP := alpha P sets
rho = 1, after which a training that was in the valley solves.
Derivation: docs/theory.md, the valley at infinity. Axes: L lane, N category.
"""

from torch import Tensor

from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.optimizers import State

RESET_STEPS = 1000
"""Training steps after the reset; most trapped trainings solve within a few hundred."""


def reset_valley(v_LNN: Tensor) -> Tensor:
    """Resets the valley's direction: replaces the part vP of v (L, N, N) by alpha P, alpha = tr(v (I - P)) / (N -
    1).
    """
    N = v_LNN.shape[1]
    row_means_LN1 = v_LNN.mean(2, keepdim=True)
    trace_L = v_LNN.diagonal(dim1=1, dim2=2).sum(1) - row_means_LN1.sum((1, 2))
    alpha_L = trace_L / (N - 1)
    return v_LNN - row_means_LN1 + alpha_L.view(-1, 1, 1) / N


def solves_after_reset(
    objective: Objective,
    parameters: State,
    rule: str,
    learning_rate: Tensor,
    solved_level: float,
    *,
    value_name: str = "v_NN",
    n_steps: int = RESET_STEPS,
) -> Tensor:
    """Returns whether each training solves the task after the reset, (L,) bool: then only the valley trapped it.

    Args:
        objective: System P's loss.
        parameters: (L, ...) the final parameters of the trainings.
        rule: The name of the optimizer.
        learning_rate: (L,) step sizes.
        solved_level: A training is solved once its loss is below this level.
        value_name: The name of the parameter v.
        n_steps: The most steps after the reset.
    """
    reset = parameters | {value_name: reset_valley(parameters[value_name])}
    return objective.falls_below(solved_level, reset, rule, learning_rate, n_steps)
