"""The loss of each training as a function of its parameters alone, for tests after training."""

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
    """`buffers` and the fixed `batch` are (n_trainings, ...) by name; the batch is empty where the loss is exact or the
    sample is a buffer."""

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
        """Of the trainings `lanes`, by default of all. Gradients flow back to `parameters`."""
        buffers, batch = self.buffers, self.batch
        if lanes is not None:
            buffers, batch = selected(buffers, lanes), selected(batch, lanes)
        result: Tensor = self._over_lanes(parameters, buffers, batch)
        return result

    def evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:  # noqa: ARG002
        """An `Evaluate`; `step` is not used."""
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
        """Whether each training's loss falls below `level` within `n_steps`, tested every `_CHECK_EVERY`. A later rise
        does not matter, so results do not depend on the other trainings, although all stop together."""
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
