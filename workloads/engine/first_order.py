"""Gradient descent, Adam and AdamW for packs: rates, schedules and clipping per lane. Axes: L lane, first everywhere.

The arithmetic follows `torch.optim` operation by operation, so that one lane agrees with a plain PyTorch loop. An
operation that no lane of a pack uses is skipped. If only some lanes use it, the others get a factor of exactly 1 or a
term of exactly 0, so a lane's bits do not depend on its neighbours.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from functools import reduce
from typing import Self

import torch
from torch import Tensor

from attnsweep.workloads.engine.layout import prefixed, under
from attnsweep.workloads.engine.optimizers import Evaluate, Optimizer, Settings, State

STEPS_AHEAD = 64
"""Steps whose rates are computed before the first of them is taken."""


class FirstOrder(Optimizer):
    """One evaluation and one update a step; all lanes are at the same step.

    Attributes:
        moments: The running averages that the rule keeps, (L, ...) by name of the average and of the parameter.
        n_updates: The updates taken so far.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.moments: dict[str, State] = {}
        self.n_updates = 0
        self._note_what_is_used()

    def advance(self, parameters: State, evaluate: Evaluate, stops: Sequence[int], most_evaluations: int) -> bool:
        until = min(stops[0], self.n_updates + most_evaluations)
        while self.n_updates < until:
            steps = range(self.n_updates, min(until, self.n_updates + STEPS_AHEAD))
            for step, (rate_L, numbers) in zip(steps, self.ahead(steps), strict=True):
                loss, gradients = evaluate(parameters, step)
                self.take_step(parameters, loss, gradients, rate_L, numbers)
                self.n_updates += 1
        return until == stops[0]

    def take_step(
        self,
        parameters: State,
        loss: Tensor,
        gradients: State,
        learning_rate: Tensor,
        numbers: State,
    ) -> None:
        """Updates `parameters` (L, ...) in place, but for `n_updates`, which is the caller's.

        Args:
            parameters: Where the loss was evaluated.
            loss: (L,).
            gradients: (L, ...).
            learning_rate: (L,), of this step.
            numbers: () each, those of this step.
        """
        self.observe(loss)
        if self._clips:
            gradients = clipped(gradients, self.settings.gradient_clip_norm)
        self._update(parameters, gradients, learning_rate, numbers)
        self.steps += self.is_finite

    def learning_rate(self, settings: Settings, step: int | Tensor) -> Tensor:
        """(L,) at a step, or (S, L) at steps (S, 1).

        Args:
            settings: Of these lanes, or of some of them.
            step: Counted from 0.
        """
        rate = settings.learning_rate
        if self._is_scheduled:
            return rate * schedule_factor(settings, step)
        return rate if isinstance(step, int) else rate.expand(len(step), -1)

    def numbers(self, step: int) -> dict[str, float]:  # noqa: ARG002
        """The numbers in an update that depend on the step alone, by name; the names are the same at every step."""
        return {}

    def ahead(self, steps: range) -> list[tuple[Tensor, State]]:
        """What `take_step` reads at each of these steps: the learning rates (L,), and the numbers, () each.

        They are tensors, computed before the steps, which then are the same operations on other tensors: a captured
        step can be replayed with those of another.
        """
        # Filled on the device: a copy would make the host wait for it.
        number = self.settings.learning_rate.new_full
        return [
            (
                self.learning_rate(self.settings, step),
                {name: number((), value) for name, value in self.numbers(step).items()},
            )
            for step in steps
        ]

    def on(self, settings: Settings, state: Mapping[str, Tensor]) -> Self:
        """The same rule, with the same operations left out, on other tensors, such as those of a trace."""
        other = copy(self)
        other.settings = settings
        other._restore(state)
        return other

    def state_dict(self) -> Mapping[str, Tensor]:
        moments = [prefixed(name, of_parameters) for name, of_parameters in self.moments.items()]
        return {
            **super().state_dict(),
            "n_updates": torch.tensor(self.n_updates),
            **{name: value for moment in moments for name, value in moment.items()},
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._restore(state)
        self.n_updates = int(state["n_updates"])

    def select(self, lanes: Tensor) -> None:
        super().select(lanes)
        self.moments = {
            moment: {name: value[lanes] for name, value in of_parameters.items()}
            for moment, of_parameters in self.moments.items()
        }
        self._note_what_is_used()

    @abstractmethod
    def _update(self, parameters: State, gradients: State, learning_rate: Tensor, numbers: State) -> None:
        """Updates `parameters` in place."""

    @property
    @abstractmethod
    def moment_names(self) -> tuple[str, ...]:
        """The names of the averages that this rule keeps."""

    def moments_of(self, parameters: State) -> dict[str, State]:
        """`moments`, which are zero before the first update."""
        for name in self.moment_names:
            if name not in self.moments:
                self.moments[name] = {parameter: torch.zeros_like(value) for parameter, value in parameters.items()}
        return self.moments

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        found = {name: under(name, state) for name in self.moment_names}
        self.moments = {name: of_parameters for name, of_parameters in found.items() if of_parameters}

    @property
    def operations(self) -> tuple[bool, ...]:
        """Which of the optional operations an update has; two rules of a class with equal ones take equal steps."""
        return (self._clips, self._decays)

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
        self._has_momentum = bool((settings.momentum != 0).any())

    @property
    def moment_names(self) -> tuple[str, ...]:
        return ("velocity",) if self._has_momentum else ()

    @property
    def operations(self) -> tuple[bool, ...]:
        return (*super().operations, self._has_momentum)

    def _update(
        self,
        parameters: State,
        gradients: State,
        learning_rate: Tensor,
        numbers: State,  # noqa: ARG002
    ) -> None:
        moments = self.moments_of(parameters)
        for name, parameter in parameters.items():
            direction = gradients[name]
            if self._decays:
                direction = direction.addcmul(_per_lane(self.settings.weight_decay, parameter), parameter)
            if self._has_momentum:
                velocity = moments["velocity"][name]
                direction = velocity.mul_(_per_lane(self.settings.momentum, parameter)).add_(direction)
            parameter.addcmul_(_per_lane(learning_rate, parameter), direction, value=-1.0)


class Adam(FirstOrder):
    """Adam with PyTorch's defaults: betas (0.9, 0.999), 1e-8 added to the root; weight decay added to the gradient.

    Source: Kingma & Ba 2015, algorithm 1.
    """

    beta_1, beta_2, denominator_eps = 0.9, 0.999, 1e-8
    moment_names = ("first", "second")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._update_of: State = {}

    def _update(self, parameters: State, gradients: State, learning_rate: Tensor, numbers: State) -> None:
        # In place: for rows of this length, allocating memory costs as much as the arithmetic.
        moments = self.moments_of(parameters)
        for name, parameter in parameters.items():
            gradient = gradients[name]
            if self._decays:
                gradient = self._decayed(parameter, gradient, learning_rate)
            first, second = moments["first"][name], moments["second"][name]
            first.lerp_(gradient, 1 - self.beta_1)
            second.mul_(self.beta_2).addcmul_(gradient, gradient, value=1 - self.beta_2)
            update = self._update_of.setdefault(name, torch.empty_like(parameter))
            torch.sqrt(second, out=update).div_(numbers["correction_2_root"]).add_(self.denominator_eps)
            step_size = _per_lane(learning_rate / numbers["correction_1"], parameter)
            parameter.sub_(torch.div(first, update, out=update).mul_(step_size))

    def numbers(self, step: int) -> dict[str, float]:
        return {
            "correction_1": 1 - self.beta_1 ** (step + 1),
            "correction_2_root": (1 - self.beta_2 ** (step + 1)) ** 0.5,
        }

    def _decayed(self, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> Tensor:  # noqa: ARG002
        """The gradient after weight decay, which may also have shrunk `parameter`."""
        return gradient.addcmul(_per_lane(self.settings.weight_decay, parameter), parameter)

    def on(self, settings: Settings, state: Mapping[str, Tensor]) -> Self:
        other = super().on(settings, state)
        other._update_of = {}
        return other

    def select(self, lanes: Tensor) -> None:
        super().select(lanes)
        self._update_of = {}


class AdamW(Adam):
    """Adam with decoupled weight decay: parameters shrink by `1 - learning_rate weight_decay` before each update.

    Source: Loshchilov & Hutter 2019, algorithm 2.
    """

    def _decayed(self, parameter: Tensor, gradient: Tensor, learning_rate: Tensor) -> Tensor:
        parameter.mul_(_per_lane(1 - learning_rate * self.settings.weight_decay, parameter))
        return gradient


def schedule_factor(settings: Settings, step: int | Tensor) -> Tensor:
    """(L,) share of `learning_rate` used at a step, or (S, L) at steps (S, 1).

    It rises linearly over `warmup_steps`, and is then constant or a cosine to 0.

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
