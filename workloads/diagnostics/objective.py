"""The loss of each training as a function of its parameters alone, for tests after training.

Axes: L training, K selected training, N category.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import vmap

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.functional import gradients_of, one_lane
from attnsweep.workloads.engine.lane_state import optimizer_named
from attnsweep.workloads.engine.layout import selected
from attnsweep.workloads.engine.optimizers import Evaluate, Settings, State

_CHECK_EVERY = 100
"""The number of steps between two comparisons of a loss with the level that it is to fall below."""


class Objective:
    """The loss of each training as a function of its parameters. Tasks and batches are held fixed.

    Args:
        batch: The batch by name, with trainings as first axis; empty where the loss is exact or the sample is a buffer.
    """

    def __init__(
        self, module: nn.Module, loss: Callable[[nn.Module, Batch], Tensor], buffers: State, batch: Batch
    ) -> None:
        self._module, self._loss = module, loss
        self.one_lane = one_lane(module, loss)
        self.buffers = buffers
        self.batch = batch
        self._over_lanes = vmap(self.one_lane)

    def select(self, lanes: Tensor) -> "Objective":
        """Returns the loss function of only some of the trainings, given by their positions (int64)."""
        return Objective(self._module, self._loss, selected(self.buffers, lanes), selected(self.batch, lanes))

    def losses(self, parameters: State, lanes: Tensor | None = None) -> Tensor:
        """Returns the losses of the trainings with the indices `lanes`, by default of all. Gradients flow back to
        `parameters`."""
        buffers, batch = self.buffers, self.batch
        if lanes is not None:
            buffers, batch = selected(buffers, lanes), selected(batch, lanes)
        result: Tensor = self._over_lanes(parameters, buffers, batch)
        return result

    def evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:  # noqa: ARG002
        """Returns the losses and gradients of all trainings, or of those at the positions `lanes`. The arguments are
        those of `Evaluate`, so that an optimizer can call this method; `step` is not used."""
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        losses = self.losses(leaves, lanes)
        return losses.detach(), gradients_of("loss", losses, leaves)

    def descended(self, parameters: State, evaluate: Evaluate, rule: str, n_steps: int) -> State:
        """Minimizes each training's loss, which `evaluate` computes, by `n_steps` steps of the optimizer `rule` with
        learning rate 1. Returns the parameters reached, with trainings as first axis."""
        ended = {name: value.detach().clone() for name, value in parameters.items()}
        rate = torch.ones_like(next(iter(ended.values())).flatten(1)[:, 0])
        optimizer = optimizer_named(rule, Settings.plain(rate, n_steps))
        while not optimizer.advance(ended, evaluate, [n_steps], n_steps):
            pass
        return ended

    def falls_below(self, level: float, parameters: State, rule: str, learning_rate: Tensor, n_steps: int) -> Tensor:
        """Returns for each training whether its loss falls below `level` within `n_steps` steps. Tests this every 100
        steps.

        A training counts even if its loss would rise again later. So its result does not depend on the other trainings,
        although all stop once every loss has been below the level.
        """
        trained = {name: value.detach().clone() for name, value in parameters.items()}
        optimizer = optimizer_named(rule, Settings.plain(learning_rate, n_steps))
        fell = torch.zeros_like(learning_rate, dtype=torch.bool)
        for step in (*range(_CHECK_EVERY, n_steps, _CHECK_EVERY), n_steps):
            while not optimizer.advance(trained, self.evaluate, [step], step):
                pass
            with torch.no_grad():
                fell |= self.losses(trained) < level
            if fell.all():
                break
        return fell


RESET_STEPS = 1000
"""The number of training steps after the valley reset (`reset_valley`); most trainings that the valley trapped solve
within a few hundred."""


def reset_valley(v_LNN: Tensor) -> Tensor:
    """Moves the value matrix out of the "valley at infinity", a descent of the loss along which the weights grow
    without end.

    This is for the model whose attention sees positions only (system P). The reset replaces v P by alpha P, where P =
    11^t / N averages over the N categories.

    For texts of M tokens and v = alpha (I - P) + beta P, the best q reaches the loss ((N-1)/N) (1-rho)^2 / ((N-1) + M
    rho^2), with rho = beta/alpha. This loss is 0 at rho = 1, and falls towards (1 - 1/N)/M as rho -> -infinity. A
    barrier separates these two regions, so a training below the level 1/N with alpha beta < 0 never solves. The reset
    sets rho = 1, after which a training that was in the valley solves. Derivation: docs/theory.md, the valley at
    infinity.
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
    n_steps: int = RESET_STEPS,
) -> Tensor:
    """Returns for each training whether it solves the task if it is trained on after a change of its value matrix. The
    change (`reset_valley`) moves the matrix out of the "valley at infinity", a descent of the loss along which the
    weights grow without end.

    If so, only the valley at infinity (a descent along which the weights grow without end) had trapped it.
    """
    reset = parameters | {"v_NN": reset_valley(parameters["v_NN"])}
    return objective.falls_below(solved_level, reset, rule, learning_rate, n_steps)
