"""Gradient descent, Adam and AdamW for packs: rates, schedules and clipping per lane. Axes: L lane, first everywhere.

The arithmetic follows `torch.optim` operation by operation, so that one lane agrees with a plain PyTorch loop. An
operation that no lane of a pack uses is skipped. If only some lanes use it, the others get a factor of exactly 1 or a
term of exactly 0, so a lane's bits do not depend on its neighbours.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor

from attnsweep.workloads.engine.layout import prefixed, under
from attnsweep.workloads.engine.optimizers import Evaluate, Optimizer, Settings, State


class FirstOrder(Optimizer):
    """One evaluation and one update a step; all lanes are at the same step."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._n_updates = 0
        self._note_what_is_used()

    def advance(self, parameters: State, evaluate: Evaluate, stops: Sequence[int], most_evaluations: int) -> bool:
        until = min(stops[0], self._n_updates + most_evaluations)
        while self._n_updates < until:
            loss, gradients = evaluate(parameters, self._n_updates)
            self.observe(loss)
            if self._clips:
                gradients = clipped(gradients, self.settings.gradient_clip_norm)
            self._n_updates += 1
            self._update(parameters, gradients, self._learning_rate())
            self.steps += self.is_finite
        return until == stops[0]

    def state_dict(self) -> Mapping[str, Tensor]:
        return {**super().state_dict(), "n_updates": torch.tensor(self._n_updates)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        self._n_updates = int(state["n_updates"])

    def select(self, lanes: Tensor) -> None:
        super().select(lanes)
        self._note_what_is_used()

    @abstractmethod
    def _update(self, parameters: State, gradients: State, learning_rate: Tensor) -> None:
        """Updates `parameters` in place; `self._n_updates` counts this update."""

    def _learning_rate(self) -> Tensor:
        if not self._is_scheduled:
            return self.settings.learning_rate
        return self.settings.learning_rate * schedule_factor(self.settings, self._n_updates - 1)

    def _note_what_is_used(self) -> None:
        # Read once per selection of lanes, not at every step: reading a tensor's value waits for the device.
        settings = self.settings
        self._clips = not bool(settings.gradient_clip_norm.isnan().all())
        self._decays = bool((settings.weight_decay != 0).any())
        warms_up = bool((settings.warmup_steps > 0).any())
        self._is_scheduled = warms_up or settings.learning_rate_schedule != "constant"


class Sgd(FirstOrder):
    """Gradient descent with heavy-ball momentum, `v = momentum v + gradient; theta -= learning_rate v`.

    `torch.optim.SGD` without dampening and Nesterov; weight decay is added to the gradient.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._velocity: State = {}
        self._has_momentum = bool((settings.momentum != 0).any())

    def _update(self, parameters: State, gradients: State, learning_rate: Tensor) -> None:
        for name, parameter in parameters.items():
            direction = gradients[name]
            if self._decays:
                direction = direction.addcmul(_per_lane(self.settings.weight_decay, parameter), parameter)
            if self._has_momentum:
                velocity = self._velocity.setdefault(name, torch.zeros_like(parameter))
                direction = velocity.mul_(_per_lane(self.settings.momentum, parameter)).add_(direction)
            parameter.addcmul_(_per_lane(learning_rate, parameter), direction, value=-1.0)

    def state_dict(self) -> Mapping[str, Tensor]:
        return {**super().state_dict(), **prefixed("velocity", self._velocity)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        self._velocity = under("velocity", state)

    def select(self, lanes: Tensor) -> None:
        super().select(lanes)
        self._velocity = {name: value[lanes] for name, value in self._velocity.items()}


class Adam(FirstOrder):
    """Adam with PyTorch's defaults: betas (0.9, 0.999), 1e-8 added to the root; weight decay added to the gradient.

    Source: Kingma & Ba 2015, algorithm 1.
    """

    beta_1, beta_2, denominator_eps = 0.9, 0.999, 1e-8

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._first: State = {}
        self._second: State = {}
        self._update_of: State = {}

    def _update(self, parameters: State, gradients: State, learning_rate: Tensor) -> None:
        # In place: for rows of this length, allocating memory costs as much as the arithmetic.
        correction_1 = 1 - self.beta_1**self._n_updates
        correction_2_root = (1 - self.beta_2**self._n_updates) ** 0.5
        for name, parameter in parameters.items():
            gradient = gradients[name]
            if self._decays:
                gradient = self._decayed(parameter, gradient, learning_rate)
            first = self._first.setdefault(name, torch.zeros_like(parameter))
            second = self._second.setdefault(name, torch.zeros_like(parameter))
            first.lerp_(gradient, 1 - self.beta_1)
            second.mul_(self.beta_2).addcmul_(gradient, gradient, value=1 - self.beta_2)
            update = self._update_of.setdefault(name, torch.empty_like(parameter))
            torch.sqrt(second, out=update).div_(correction_2_root).add_(self.denominator_eps)
            step_size = _per_lane(learning_rate / correction_1, parameter)
            parameter.sub_(torch.div(first, update, out=update).mul_(step_size))

    def _decayed(self, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> Tensor:  # noqa: ARG002
        """The gradient after weight decay, which may also have shrunk `parameter`."""
        return gradient.addcmul(_per_lane(self.settings.weight_decay, parameter), parameter)

    def state_dict(self) -> Mapping[str, Tensor]:
        return {**super().state_dict(), **prefixed("first", self._first), **prefixed("second", self._second)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        self._first, self._second = under("first", state), under("second", state)

    def select(self, lanes: Tensor) -> None:
        super().select(lanes)
        self._first = {name: value[lanes] for name, value in self._first.items()}
        self._second = {name: value[lanes] for name, value in self._second.items()}
        self._update_of = {}


class AdamW(Adam):
    """Adam with decoupled weight decay: parameters shrink by `1 - learning_rate weight_decay` before each update.

    Source: Loshchilov & Hutter 2019, algorithm 2.
    """

    def _decayed(self, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> Tensor:
        parameter.mul_(_per_lane(1 - learning_rate * self.settings.weight_decay, parameter))
        return gradient


def schedule_factor(settings: Settings, step: int) -> Tensor:
    """(L,) share of `learning_rate` used at a step: a linear rise over `warmup_steps`, then constant or a cosine to 0.

    The rise starts at 1 / warmup_steps and has ended when step = warmup_steps - 1; the cosine is
    `CosineAnnealingLR`'s over the steps that remain, and would reach 0 at step n_steps.
    """
    warmup = settings.warmup_steps
    rise = ((step + 1) / warmup.clamp(min=1)).clamp(max=1)
    if settings.learning_rate_schedule == "constant":
        return rise
    progress = ((step - warmup) / (settings.n_steps - warmup).clamp(min=1)).clamp(0, 1)
    return torch.where(step < warmup, rise, 0.5 * (1 + torch.cos(math.pi * progress)))


def clipped(gradients: State, largest_norm: Tensor) -> State:
    """Gradients whose norm over all parameters is at most `largest_norm` (L,) in each lane; NaN leaves a lane as it is.

    `torch.nn.utils.clip_grad_norm_` per lane: 1e-6 is added to the norm in the factor.
    """
    factor = (largest_norm / (norm_per_lane(gradients) + 1e-6)).clamp(max=1)
    factor = torch.where(largest_norm.isnan(), torch.ones_like(factor), factor)
    return {name: gradient * _per_lane(factor, gradient) for name, gradient in gradients.items()}


def norm_per_lane(state: State) -> Tensor:
    """(L,) Euclidean norm over all tensors of each lane."""
    squares = [value.square().flatten(1).sum(1) for value in state.values()]
    # Added one by one: a sum over the first of two axes groups its terms by the length of the second.
    return reduce(torch.add, squares).sqrt()


def _per_lane(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.dim() - 1))
