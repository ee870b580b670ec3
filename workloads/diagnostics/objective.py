"""The loss of each training as a function of its parameters alone, for tests after training. Axes: L training, K
selected training, N category."""

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


class Objective:
    """The loss of each training as a function of its parameters, on a fixed `batch`, (n_trainings, ...) by name; empty
    where the loss is exact or the sample is a buffer."""

    def __init__(
        self, module: nn.Module, loss: Callable[[nn.Module, Batch], Tensor], buffers: State, batch: Batch
    ) -> None:
        self._module, self._loss = module, loss
        self.one_lane = one_lane(module, loss)
        self.buffers = buffers
        self.batch = batch
        self._over_lanes = vmap(self.one_lane)

    def select(self, lanes: Tensor) -> "Objective":
        return Objective(self._module, self._loss, selected(self.buffers, lanes), selected(self.batch, lanes))

    def losses(self, parameters: State, lanes: Tensor | None = None) -> Tensor:
        """The losses of the trainings `lanes`, by default of all. Gradients flow back to `parameters`."""
        buffers, batch = self.buffers, self.batch
        if lanes is not None:
            buffers, batch = selected(buffers, lanes), selected(batch, lanes)
        result: Tensor = self._over_lanes(parameters, buffers, batch)
        return result

    def evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:  # noqa: ARG002
        """Losses and gradients, as an `Evaluate` for optimizers; `step` is not used."""
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        losses = self.losses(leaves, lanes)
        return losses.detach(), gradients_of("loss", losses, leaves)

    def descended(self, parameters: State, evaluate: Evaluate, rule: str, n_steps: int) -> State:
        """The parameters reached by minimizing each loss in `n_steps` of the optimizer `rule` with learning rate 1."""
        ended = {name: value.detach().clone() for name, value in parameters.items()}
        rate = torch.ones_like(next(iter(ended.values())).flatten(1)[:, 0])
        optimizer = optimizer_named(rule, Settings.plain(rate, n_steps))
        while not optimizer.advance(ended, evaluate, n_steps, n_steps):
            pass
        return ended

    def falls_below(self, level: float, parameters: State, rule: str, learning_rate: Tensor, n_steps: int) -> Tensor:
        """Whether each training's loss falls below `level` within `n_steps`, tested every 100. A later rise does not
        matter, so that results do not depend on the other trainings, although all stop together."""
        trained = {name: value.detach().clone() for name, value in parameters.items()}
        optimizer = optimizer_named(rule, Settings.plain(learning_rate, n_steps))
        fell = torch.zeros_like(learning_rate, dtype=torch.bool)
        for step in (*range(_CHECK_EVERY, n_steps, _CHECK_EVERY), n_steps):
            while not optimizer.advance(trained, self.evaluate, step, step):
                pass
            with torch.no_grad():
                fell |= self.losses(trained) < level
            if fell.all():
                break
        return fell


RESET_STEPS = 1000
"""Steps after `reset_valley`; most trainings that the valley trapped solve within a few hundred."""


def reset_valley(v_LNN: Tensor) -> Tensor:
    """Moves the value matrix of system P out of the "valley at infinity", along which the weights grow without end: v P
    becomes alpha P, where P = 11^t / N averages over the N categories.

    For texts of M tokens and v = alpha (I - P) + beta P, the best q reaches the loss ((N-1)/N) (1-rho)^2 / ((N-1) + M
    rho^2), with rho = beta/alpha. This loss is 0 at rho = 1, and falls towards (1 - 1/N)/M as rho -> -infinity. A
    barrier separates these two regions, so a training below the level 1/N with alpha beta < 0 never solves. The reset
    sets rho = 1, after which it does. Derivation: docs/theory.md, the valley at infinity.
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
    """Whether each training solves the task when trained on after `reset_valley`: only the valley had trapped it."""
    reset = parameters | {"v_NN": reset_valley(parameters["v_NN"])}
    return objective.falls_below(solved_level, reset, rule, learning_rate, n_steps)
