"""The losses of L trainings as a function of their parameters alone, for tests after training.

Axes: L lane, K lane named.
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

_LOOK_STEPS = 100


class Objective:
    """The training losses of L trainings, with tasks and batches fixed.

    Args:
        module: The module of ONE training, as built by the workload.
        loss: Its scalar loss, for example the workload's.
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
        """The losses of the lanes at these positions, (K,) int64."""
        return Objective(self._module, self._loss, selected(self.buffers, lanes), selected(self.batch, lanes))

    def losses(self, parameters: State, lanes: Tensor | None = None) -> Tensor:
        """(K,) losses at parameters (K, ...), differentiable; of all lanes by default."""
        buffers, batch = self.buffers, self.batch
        if lanes is not None:
            buffers, batch = selected(buffers, lanes), selected(batch, lanes)
        result: Tensor = self._over_lanes(parameters, buffers, batch)
        return result

    def evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:  # noqa: ARG002
        """Losses and gradients; implements the protocol `Evaluate` of optimizers."""
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        losses = self.losses(leaves, lanes)
        gradients = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)
        return losses.detach(), dict(zip(leaves, gradients, strict=True))

    def train_on(self, parameters: State, rule: str, learning_rate: Tensor, n_steps: int) -> tuple[State, Tensor]:
        """Parameters and losses (L,) after further steps of an update rule, started without history.

        Args:
            parameters: (L, ...) to start from; not changed.
            rule: The name of an optimizer.
            learning_rate: (L,) step sizes.
            n_steps: Steps to take; a lane that turns non-finite keeps its last values.
        """
        *_, (trained, losses) = self._trained(parameters, rule, learning_rate, [n_steps])
        return trained, losses

    def descended(self, parameters: State, evaluate: Evaluate, rule: str, n_steps: int) -> State:
        """Parameters (L, ...) after `n_steps` of an update rule with step size 1 on another form of the objective."""
        ended = {name: value.detach().clone() for name, value in parameters.items()}
        rate = torch.ones_like(next(iter(ended.values())).flatten(1)[:, 0])
        optimizer = optimizer_named(rule, Settings.plain(rate, n_steps))
        while not optimizer.advance(ended, evaluate, [n_steps], n_steps):
            pass
        return ended

    def falls_below(self, level: float, parameters: State, rule: str, learning_rate: Tensor, n_steps: int) -> Tensor:
        """(L,) bool, whether a loss is below a level after 100, 200, ... or all of further steps.

        It ends once all lanes have been below, so a lane that would rise again later still counts: its answer does not
        depend on the others.

        Args:
            level: The level.
            parameters, rule, learning_rate: As `train_on` takes them.
            n_steps: The most steps to take.
        """
        looks = [*range(_LOOK_STEPS, n_steps, _LOOK_STEPS), n_steps]
        fell = torch.zeros_like(learning_rate, dtype=torch.bool)
        for _, losses in self._trained(parameters, rule, learning_rate, looks):
            fell |= losses < level
            if fell.all():
                break
        return fell

    def _trained(
        self, parameters: State, rule: str, learning_rate: Tensor, looks: Sequence[int]
    ) -> Iterator[tuple[State, Tensor]]:
        """The parameters and losses at some numbers of steps."""
        trained = {name: value.detach().clone() for name, value in parameters.items()}
        optimizer = optimizer_named(rule, Settings.plain(learning_rate, looks[-1]))
        for look in looks:
            while not optimizer.advance(trained, self.evaluate, [look], look):
                pass
            with torch.no_grad():
                losses = self.losses(trained)
            yield trained, losses
