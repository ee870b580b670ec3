"""The valley at infinity of system P, and the reset that proves a training to be in it.

For v = alpha (I - P) + beta P with P = 11^t/N the best q leaves the level ((N-1)/N) (1-rho)^2 / ((N-1) + M rho^2),
rho = beta/alpha: 0 at rho = 1, falling towards (1 - 1/N)/M as rho -> -infinity. Below 1/N, between the two, lies a
barrier: descent with alpha beta < 0 never solves. Setting vP := alpha P puts it at rho = 1; trained on, it then solves.
Derivation: docs/theory.md, the valley at infinity. Axes: L lane, N category.
"""

from torch import Tensor

from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.optimizers import Optimizer, State

RESET_STEPS = 1000
"""Steps of training on; most trapped runs solve within some hundred."""


def reset_valley(v_LNN: Tensor) -> Tensor:
    """(L, N, N) v with vP replaced by alpha P, alpha = tr(v (I - P)) / (N - 1)."""
    N = v_LNN.shape[1]
    row_means_LN1 = v_LNN.mean(2, keepdim=True)
    trace_L = v_LNN.diagonal(dim1=1, dim2=2).sum(1) - row_means_LN1.sum((1, 2))
    alpha_L = trace_L / (N - 1)
    return v_LNN - row_means_LN1 + alpha_L.view(-1, 1, 1) / N


def losses_after_reset(
    objective: Objective,
    parameters: State,
    rule: type[Optimizer],
    learning_rate: Tensor,
    *,
    value_name: str = "v_NN",
    n_steps: int = RESET_STEPS,
) -> Tensor:
    """(L,) losses of trainings taken out of the valley and trained on: solved ones were trapped by nothing else.

    Args:
        objective: System P's loss.
        parameters: (L, ...) where the trainings ended.
        rule: The update rule that they were trained by.
        learning_rate: (L,) theirs.
        value_name: The parameter that holds v.
        n_steps: Steps trained on.
    """
    reset = parameters | {value_name: reset_valley(parameters[value_name])}
    return objective.train_on(reset, rule, learning_rate, n_steps)[1]
