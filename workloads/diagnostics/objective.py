"""The losses of L trainings as a function of their parameters alone, for tests after training.

Axes: L lane, K lane named.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import vmap

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.functional import one_lane
from attnsweep.workloads.engine.optimizers import Optimizer, Settings, State


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
        self.one_lane = one_lane(module, loss)
        self.buffers = buffers
        self.batch = batch
        self._over_lanes = vmap(self.one_lane)

    def losses(self, parameters: State, lanes: Tensor | None = None) -> Tensor:
        """(K,) losses at parameters (K, ...), differentiable; of all lanes by default."""
        buffers, batch = self.buffers, self.batch
        if lanes is not None:
            buffers = {name: value[lanes] for name, value in buffers.items()}
            batch = {name: value[lanes] for name, value in batch.items()}
        result: Tensor = self._over_lanes(parameters, buffers, batch)
        return result

    def evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:  # noqa: ARG002
        """Losses and gradients; implements the protocol `Evaluate` of optimizers."""
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        losses = self.losses(leaves, lanes)
        gradients = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)
        return losses.detach(), dict(zip(leaves, gradients, strict=True))

    def train_on(
        self, parameters: State, rule: type[Optimizer], learning_rate: Tensor, n_steps: int
    ) -> tuple[State, Tensor]:
        """Parameters and losses (L,) after further steps of an update rule, started without history.

        Args:
            parameters: (L, ...) to start from; not changed.
            rule: For example `Sgd` or `Lbfgs`.
            learning_rate: (L,) step sizes.
            n_steps: Steps to take; a lane that turns non-finite keeps its last values.
        """
        trained = {name: value.detach().clone() for name, value in parameters.items()}
        optimizer = rule(_plain_settings(learning_rate, n_steps))
        while not optimizer.advance(trained, self.evaluate, [n_steps], n_steps):
            pass
        return trained, self.losses(trained)


def _plain_settings(learning_rate: Tensor, n_steps: int) -> Settings:
    nothing = torch.zeros_like(learning_rate)
    return Settings(
        learning_rate=learning_rate,
        momentum=nothing,
        weight_decay=nothing,
        warmup_steps=nothing,
        gradient_clip_norm=torch.full_like(learning_rate, float("nan")),
        learning_rate_schedule="constant",
        n_steps=n_steps,
    )
