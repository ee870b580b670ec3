"""First-order optimizers for packs. Each training has its own schedule and clipping.

An operation that no training of a pack uses is skipped. If only some use it, the others get a factor of exactly 1 or a
term of exactly 0, which changes no bit. Axes: L training; S step.
"""

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor

from attnsweep.workloads.engine.layout import under
from attnsweep.workloads.engine.optimizers import Evaluate, Optimizer, Settings, State
from attnsweep.workloads.update_rules import UpdateRule

STEPS_AHEAD = 64
"""Rates, such as learning rates, are computed for this many steps at a time, before they are taken."""
MOVES = "moves"
"""The prefix of masks among the rates: by parameter, (L, ...), false for entries that a step leaves as they are."""
_CLIP = "gradient_clip_norm"


class FirstOrder(Optimizer):
    """Evaluates loss and gradient once a step.

    Attributes:
        constants: The rates that are the same at all steps, (L, 1) by hyperparameter that some training uses. With
            frozen parameters also the mask `moves/rows`, which may change between calls of `advance`.
    """

    def __init__(self, rule: UpdateRule, settings: Settings) -> None:
        super().__init__(settings)
        self.rule, self.n_updates = rule, 0
        self._averages: State = {}
        # Determined at the pack's start, so that the program stays the same when trainings end.
        unused = {name for name in rule.optional if not settings.values[name].any()}
        clips = [] if settings.values[_CLIP].isnan().all() else [_CLIP]
        self.constants = {name: settings.column(name) for name in (*rule.reads, *clips) if name not in unused}
        self.constants |= self._rule_constants()
        self._slots = [name for name, served in rule.slots.items() if served not in unused]
        self._has_cosine = bool(settings.values["cosine_from"].isfinite().any())
        self._is_scheduled = self._has_cosine or bool(settings.values["warmup_steps"].any())
        self._note_kinds()

    def advance(self, parameters: State, evaluate: Evaluate, stop: int, most_evaluations: int) -> bool:
        state = self.state_of(parameters)
        until = min(stop, self.n_updates + most_evaluations)
        while self.n_updates < until:
            steps = range(self.n_updates, min(until, self.n_updates + STEPS_AHEAD))
            for step, rates in zip(steps, self.ahead(steps), strict=True):
                loss, gradients = evaluate(parameters, step)
                take_step(self.rule, parameters, state, (loss, gradients), self.constants | rates)
                self.n_updates += 1
        return until == stop

    def learning_rate(self, step: int | Tensor) -> Tensor:
        """Each training's learning rate at a step, counted from 0; at several steps, these are the first axis."""
        rate = self.settings.column("learning_rate")
        if self._is_scheduled:
            return rate * schedule_factor(self.settings, step, falls=self._has_cosine)
        return rate if isinstance(step, int) else rate.expand(len(step), -1, -1)

    def corrections(self, steps: range) -> State:
        """What an update rule derives from the step's number, such as Adam's bias corrections: (S, L, 1) by name."""
        by_step = [[self.rule.corrections(step + 1, **kind) for kind in self._kinds] for step in steps]
        return {
            name: self._of_lanes([[kind[name] for kind in by_kind] for by_kind in by_step]) for name in by_step[0][0]
        }

    def ahead(self, steps: range) -> list[State]:
        """The rates that change with the step, (L, 1) by name. They exist before the steps are taken, so that a
        captured step can be replayed with those of another."""
        rates = [self.learning_rate(step) for step in steps]
        corrections = {name: values.unbind() for name, values in self.corrections(steps).items()}
        return [
            {"learning_rate": rate, **dict(zip(corrections, corrections_of_step, strict=True))}
            for rate, *corrections_of_step in zip(rates, *corrections.values(), strict=True)
        ]

    def state_of(self, parameters: State) -> State:
        """What steps change in place besides `parameters`, as `<running average>/<parameter>`; no copies."""
        for slot in self._slots:
            for name, value in parameters.items():
                if f"{slot}/{name}" not in self._averages:
                    self._averages[f"{slot}/{name}"] = torch.zeros_like(value)
        return {**super().state_dict(), **self._averages}

    def state_dict(self) -> Mapping[str, Tensor]:
        return {**super().state_dict(), "n_updates": torch.tensor(self.n_updates), **self._averages}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        self.n_updates = int(state["n_updates"])
        self._averages = {name: value for name, value in state.items() if name.partition("/")[0] in self._slots}

    def select(self, lanes: Tensor) -> None:
        super().select(lanes)
        self._averages = {name: value[lanes] for name, value in self._averages.items()}
        self.constants = {name: values[lanes] for name, values in self.constants.items()}
        self._note_kinds()

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the constants but masks. They decide what a step computes, hence its program."""
        return tuple(name for name in self.constants if not is_mask(name))

    def _note_kinds(self) -> None:
        """Groups trainings with equal hyperparameters: bias corrections are computed per group."""
        names = self.rule.computed_from
        settings_of_lanes = list(zip(*(self.settings.values[name].tolist() for name in names), strict=True))
        kinds = list(dict.fromkeys(settings_of_lanes)) or [()]
        kind_of_lanes = [kinds.index(lane) for lane in settings_of_lanes] or [0] * len(self.steps)
        self._kinds = [dict(zip(names, kind, strict=True)) for kind in kinds]
        self._kind_L = torch.tensor(kind_of_lanes, device=self.steps.device)

    def _rule_constants(self) -> State:
        values = {name: self.settings.values[name].tolist() for name in self.rule.computed_from}
        constants_of_lanes = [
            self.rule.constants(**dict(zip(values, lane, strict=True))) for lane in zip(*values.values(), strict=True)
        ]
        like = self.settings.column("learning_rate")
        names = constants_of_lanes[0] if constants_of_lanes else ()
        return {
            name: torch.tensor([[lane[name]] for lane in constants_of_lanes], dtype=like.dtype).to(like.device)
            for name in names
        }

    def _of_lanes(self, values: Sequence[Sequence[float]]) -> Tensor:
        """(S, L, 1) from the values of each step and group."""
        like = self.settings.column("learning_rate")
        if len(self._kinds) == 1:
            # `full_like` fills it on the device; the host would wait for a copy.
            return torch.stack([torch.full_like(like, number) for (number,) in values])
        return torch.tensor(values, dtype=like.dtype).to(like.device)[:, self._kind_L, None]


def take_step(
    rule: UpdateRule, parameters: State, state: State, evaluated: tuple[Tensor, State], rates: Mapping[str, Tensor]
) -> None:
    """One step in place. `state` is that of `state_of`, `rates` are the constants and those of `ahead`."""
    loss, gradients = evaluated
    masks, rates = under(MOVES, rates), {name: value for name, value in rates.items() if not is_mask(name)}
    state["is_finite"].logical_and_(torch.isfinite(loss))
    if _CLIP in rates:
        gradients = clipped(gradients, rates[_CLIP][:, 0])
    for name, theta in parameters.items():
        slots = {slot: state[f"{slot}/{name}"] for slot in rule.slots if f"{slot}/{name}" in state}
        own_rates = rates if theta.dim() == 2 else {rate: _per_lane(value, theta) for rate, value in rates.items()}
        before = theta.clone() if name in masks else theta
        rule.update(theta, gradients[name], slots, own_rates)
        if name in masks:
            theta.copy_(torch.where(masks[name], theta, before))
    state["steps"].add_(state["is_finite"])


def is_mask(name: str) -> bool:
    return name.startswith(f"{MOVES}/")


def schedule_factor(settings: Settings, step: int | Tensor, *, falls: bool) -> Tensor:
    """The factor of each training's `learning_rate`: (L, 1) at one step, (S, L, 1) at steps (S, 1, 1).

    It rises linearly from 1 / warmup_steps at step 0 to 1 at step warmup_steps - 1. Then it is constant, or the cosine
    of `CosineAnnealingLR` over the remaining steps, 0 at step n_steps. `falls`: some training has a cosine.
    """
    warmup = settings.column("warmup_steps")
    rise = ((step + 1) / warmup.clamp(min=1)).clamp(max=1)
    if not falls:
        return rise
    progress = ((step - warmup) / (settings.n_steps - warmup).clamp(min=1)).clamp(0, 1)
    return torch.where(step < settings.column("cosine_from"), rise, 0.5 * (1 + torch.cos(math.pi * progress)))


def clipped(gradients: State, largest_norm: Tensor) -> State:
    """Scales gradients to a norm of at most `largest_norm`, (L,), NaN: no limit. By `clip_grad_norm_`'s formula."""
    factor = (largest_norm / (norm_per_lane(gradients) + 1e-6)).clamp(max=1)  # PyTorch's 1e-6
    factor = torch.where(largest_norm.isnan(), torch.ones_like(factor), factor)
    return {name: gradient * _per_lane(factor, gradient) for name, gradient in gradients.items()}


def norm_per_lane(state: State) -> Tensor:
    """Each training's Euclidean norm over all tensors."""
    squares = [value.square().flatten(1).sum(1) for value in state.values()]
    # `reduce` adds one by one; the order of a `sum` over a stack depends on the number of trainings.
    return reduce(torch.add, squares).sqrt()


def _per_lane(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *[1] * (like.dim() - 1))
