"""The losses of L trainings as a function of their parameters alone, for tests after training.

Axes: L lane, K selected lane.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import vmap

from attnsweep.workloads.engine.chosen_optimizer import optimizer_named
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.functional import one_lane
from attnsweep.workloads.engine.layout import selected
from attnsweep.workloads.engine.optimizers import Evaluate, Settings, State

_CHECK_EVERY = 100
"""Steps between two comparisons of the loss with the level."""


class Objective:
    """The losses of L trainings as a function of their parameters, with tasks and batches held fixed.

    Args:
        module: The module of ONE training, as built by the workload.
        loss: The scalar loss of one training, for example the workload's.
        buffers: (L, ...) by name.
        batch: (L, ...) by name; empty where the loss is exact or the sample is a buffer.
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
        """Returns the objective for the lanes at the positions `lanes`, (K,) int64."""
        return Objective(self._module, self._loss, selected(self.buffers, lanes), selected(self.batch, lanes))

    def losses(self, parameters: State, lanes: Tensor | None = None) -> Tensor:
        """Returns the losses (K,) of `lanes` at parameters (K, ...), differentiable. By default `lanes` are all
        lanes."""
        buffers, batch = self.buffers, self.batch
        if lanes is not None:
            buffers, batch = selected(buffers, lanes), selected(batch, lanes)
        result: Tensor = self._over_lanes(parameters, buffers, batch)
        return result

    def evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:  # noqa: ARG002
        """Returns losses (K,) and gradients (K, ...), with the signature that optimizers need (`Evaluate`)."""
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        losses = self.losses(leaves, lanes)
        gradients = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)
        return losses.detach(), dict(zip(leaves, gradients, strict=True))

    def train_on(self, parameters: State, rule: str, learning_rate: Tensor, n_steps: int) -> tuple[State, Tensor]:
        """Trains on from `parameters` with a newly started optimizer. Returns parameters (L, ...) and losses (L,).

        Args:
            parameters: (L, ...) the starting parameters; they are not changed.
            rule: The name of an optimizer.
            learning_rate: (L,) step sizes.
            n_steps: Steps to take; a lane that turns non-finite keeps its last values.
        """
        *_, (trained, losses) = self._trained(parameters, rule, learning_rate, [n_steps])
        return trained, losses

    def descended(self, parameters: State, evaluate: Evaluate, rule: str, n_steps: int) -> State:
        """Minimizes `evaluate` for `n_steps` of an optimizer with learning rate 1. Returns parameters (L, ...).

        Args:
            parameters: (L, ...) the starting parameters; they are not changed.
            evaluate: The objective to minimize, which may be another form of this one.
            rule: The name of an optimizer.
            n_steps: Steps to take.
        """
        ended = {name: value.detach().clone() for name, value in parameters.items()}
        rate = torch.ones_like(next(iter(ended.values())).flatten(1)[:, 0])
        optimizer = optimizer_named(rule, Settings.plain(rate, n_steps))
        while not optimizer.advance(ended, evaluate, [n_steps], n_steps):
            pass
        return ended

    def falls_below(self, level: float, parameters: State, rule: str, learning_rate: Tensor, n_steps: int) -> Tensor:
        """Returns which losses fall below a level within `n_steps` further steps, tested every 100 steps, (L,) bool.

        A lane counts even if its loss would rise again later, so the result of a lane does not depend on the others,
        although training ends once all lanes have been below the level.

        Args:
            level: The level.
            parameters, rule, learning_rate: The same as for `train_on`.
            n_steps: The most steps to take.
        """
        check_steps = [*range(_CHECK_EVERY, n_steps, _CHECK_EVERY), n_steps]
        fell = torch.zeros_like(learning_rate, dtype=torch.bool)
        for _, losses in self._trained(parameters, rule, learning_rate, check_steps):
            fell |= losses < level
            if fell.all():
                break
        return fell

    def _trained(
        self, parameters: State, rule: str, learning_rate: Tensor, steps: Sequence[int]
    ) -> Iterator[tuple[State, Tensor]]:
        """Yields the parameters (L, ...) and losses (L,) after each of the numbers of steps `steps`, which ascend."""
        trained = {name: value.detach().clone() for name, value in parameters.items()}
        optimizer = optimizer_named(rule, Settings.plain(learning_rate, steps[-1]))
        for step in steps:
            while not optimizer.advance(trained, self.evaluate, [step], step):
                pass
            with torch.no_grad():
                losses = self.losses(trained)
            yield trained, losses
