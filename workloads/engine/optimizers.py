"""Update rules for packs: each lane has a learning rate of its own. Axes: L lane, first in every tensor.

The arithmetic follows `torch.optim` operation by operation, so that one lane agrees with a plain PyTorch loop.
"""

from typing import Protocol

import torch
from torch import Tensor

State = dict[str, Tensor]
"""Tensors by parameter name, each (L, ...)."""


class Optimizer(Protocol):
    """One update rule for all lanes of a pack.

    Implementers: a lane's update may depend on that lane's values alone; `select` keeps the lanes named, in order.
    """

    def step(self, parameters: State, gradients: State) -> None:
        """Updates `parameters` in place."""

    def select(self, lanes: Tensor) -> None:
        """Goes on with the lanes at these positions, (K,) int64."""


class Sgd:
    """Plain gradient descent, `theta -= learning_rate * gradient`.

    Args:
        learning_rate: (L,).
    """

    def __init__(self, learning_rate: Tensor) -> None:
        self._learning_rate = learning_rate

    def step(self, parameters: State, gradients: State) -> None:
        for name, parameter in parameters.items():
            parameter.addcmul_(_per_lane(self._learning_rate, parameter), gradients[name], value=-1.0)

    def select(self, lanes: Tensor) -> None:
        self._learning_rate = self._learning_rate[lanes]


class Adam:
    """Adam with PyTorch's defaults: betas (0.9, 0.999), 1e-8 added to the root.

    Source: Kingma & Ba 2015, algorithm 1.

    Args:
        learning_rate: (L,).
    """

    beta_1, beta_2, denominator_eps = 0.9, 0.999, 1e-8

    def __init__(self, learning_rate: Tensor) -> None:
        self._learning_rate = learning_rate
        self._first: State = {}
        self._second: State = {}
        self._n_updates = 0

    def step(self, parameters: State, gradients: State) -> None:
        self._n_updates += 1
        correction_1 = 1 - self.beta_1**self._n_updates
        correction_2_root = (1 - self.beta_2**self._n_updates) ** 0.5
        for name, parameter in parameters.items():
            gradient = gradients[name]
            first = self._first.setdefault(name, torch.zeros_like(parameter))
            second = self._second.setdefault(name, torch.zeros_like(parameter))
            first.lerp_(gradient, 1 - self.beta_1)
            second.mul_(self.beta_2).addcmul_(gradient, gradient, value=1 - self.beta_2)
            denominator = (second.sqrt() / correction_2_root).add_(self.denominator_eps)
            step_size = _per_lane(self._learning_rate / correction_1, parameter)
            parameter.sub_(step_size * (first / denominator))

    def select(self, lanes: Tensor) -> None:
        self._learning_rate = self._learning_rate[lanes]
        self._first = {name: value[lanes] for name, value in self._first.items()}
        self._second = {name: value[lanes] for name, value in self._second.items()}


OPTIMIZERS: dict[str, type[Sgd] | type[Adam]] = {"sgd": Sgd, "adam": Adam}


def _per_lane(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.dim() - 1))
