"""Update rules of first order for packs: rates, schedules and clipping per lane. Axes: L lane, always first; S step.

An operation that no lane of a pack uses is skipped. If only some use it, the others get a factor of exactly 1 or a
term of exactly 0, so a lane's bits do not depend on its neighbours.
"""

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor

from attnsweep.workloads.engine.layout import under
from attnsweep.workloads.engine.optimizers import Evaluate, Optimizer, Settings, State
from attnsweep.workloads.update_rules import Hyperparameters, UpdateRule

STEPS_AHEAD = 64
"""Steps whose rates are computed before the first of them is taken."""
MOVES = "moves"
"""The prefix of masks in the rates: (L, ...) bool by parameter, false for numbers that a step leaves as they are."""
_CLIP = "gradient_clip_norm"


class FirstOrder(Optimizer):
    """One evaluation and one update a step; all lanes are at the same step.

    Attributes:
        rule: The update rule.
        constants: The rates that stay the same at all steps, (L, 1) by name: of the hyperparameters that a lane uses.
            And `moves/rows` (L, n) where a lane freezes parameters: it changes between calls of `advance`.
        usual: Those of them that are at their defaults in all lanes: compiled into a program, where reading them costs.
        n_updates: The updates taken so far.
    """

    def __init__(self, rule: UpdateRule, settings: Settings) -> None:
        super().__init__(settings)
        self.rule, self.n_updates = rule, 0
        self._averages: State = {}
        # What no lane of the whole pack uses is left out, also after lanes have left.
        unused = {name for name in rule.optional if not settings.values[name].any()}
        clips = [] if settings.values[_CLIP].isnan().all() else [_CLIP]
        self.constants = {name: settings.column(name) for name in (*rule.reads, *clips) if name not in unused}
        self.constants |= self._rule_constants()
        self.usual = self._usual()
        self._slots = [name for name, served in rule.slots.items() if served not in unused]
        self._has_cosine = bool(settings.values["cosine_from"].isfinite().any())
        self._is_scheduled = self._has_cosine or bool(settings.values["warmup_steps"].any())
        self._note_kinds()

    def advance(self, parameters: State, evaluate: Evaluate, stops: Sequence[int], most_evaluations: int) -> bool:
        state = self.state_of(parameters)
        until = min(stops[0], self.n_updates + most_evaluations)
        while self.n_updates < until:
            steps = range(self.n_updates, min(until, self.n_updates + STEPS_AHEAD))
            for step, rates in zip(steps, self.ahead(steps), strict=True):
                loss, gradients = evaluate(parameters, step)
                take_step(self.rule, parameters, state, (loss, gradients), self.constants | rates)
                self.n_updates += 1
        return until == stops[0]

    def learning_rate(self, step: int | Tensor) -> Tensor:
        """(L, 1) at a step, or (S, L, 1) at steps (S, 1, 1), counted from 0."""
        rate = self.settings.column("learning_rate")
        if self._is_scheduled:
            return rate * schedule_factor(self.settings, step, falls=self._has_cosine)
        return rate if isinstance(step, int) else rate.expand(len(step), -1, -1)

    def corrections(self, steps: range) -> State:
        """(S, L, 1) by name: the rule's corrections at each of these steps."""
        of_steps = [[self.rule.corrections(step + 1, **kind) for kind in self._kinds] for step in steps]
        return {
            name: self._of_lanes([[kind[name] for kind in of_step] for of_step in of_steps]) for name in of_steps[0][0]
        }

    def ahead(self, steps: range) -> list[State]:
        """The rates that differ from step to step, (L, 1) by name, for each of these steps.

        They are tensors, computed before the steps, which then are the same operations on other tensors: a captured
        step can be replayed with those of another.
        """
        rates = [self.learning_rate(step) for step in steps]
        corrections = {name: values.unbind() for name, values in self.corrections(steps).items()}
        return [
            {"learning_rate": rate, **dict(zip(corrections, of_step, strict=True))}
            for rate, *of_step in zip(rates, *corrections.values(), strict=True)
        ]

    def state_of(self, parameters: State) -> State:
        """What steps change besides the parameters (L, ...), by name: no copies. Averages are `<slot>/<parameter>`."""
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
        """What an update reads, and what of it is usual: two rules of a name with equal ones have one program."""
        return (*(name for name in self.constants if not is_mask(name)), "", *self.usual)

    def _note_kinds(self) -> None:
        """Lanes with the same hyperparameters have the same corrections, which are computed once."""
        names = self.rule.computed_from
        of_lanes = list(zip(*(self.settings.values[name].tolist() for name in names), strict=True))
        kinds = list(dict.fromkeys(of_lanes)) or [()]
        places = [kinds.index(each) for each in of_lanes] or [0] * len(self.steps)
        self._kinds = [dict(zip(names, kind, strict=True)) for kind in kinds]
        self._kind_L = torch.tensor(places, device=self.steps.device)

    def _rule_constants(self) -> State:
        values = {name: self.settings.values[name].tolist() for name in self.rule.computed_from}
        of_lanes = [
            self.rule.constants(**dict(zip(values, lane, strict=True))) for lane in zip(*values.values(), strict=True)
        ]
        like = self.settings.column("learning_rate")
        names = of_lanes[0] if of_lanes else ()
        return {
            name: torch.tensor([[lane[name]] for lane in of_lanes], dtype=like.dtype).to(like.device) for name in names
        }

    def _usual(self) -> dict[str, float]:
        rule, defaults = self.rule, vars(Hyperparameters())
        read = {name: defaults[name] for name in (*rule.reads, *rule.computed_from)}
        usual: dict[str, float] = {
            name: value for name, value in read.items() if self.settings.values[name].eq(value).all()
        }
        if all(name in usual for name in rule.computed_from):
            usual |= rule.constants(**{name: usual[name] for name in rule.computed_from})
        return {name: value for name, value in usual.items() if name in self.constants}

    def _of_lanes(self, of_kinds: Sequence[Sequence[float]]) -> Tensor:
        """(S, L, 1) numbers, from those of each kind of lane at each step."""
        like = self.settings.column("learning_rate")
        if len(self._kinds) == 1:
            # Filled on the device: a copy would make the host wait for it.
            return torch.stack([torch.full_like(like, number) for (number,) in of_kinds])
        return torch.tensor(of_kinds, dtype=like.dtype).to(like.device)[:, self._kind_L, None]


def take_step(
    rule: UpdateRule, parameters: State, state: State, found: tuple[Tensor, State], rates: Mapping[str, Tensor]
) -> None:
    """Takes a step of L trainings: updates `parameters` and `state` in place.

    Args:
        rule: The update rule.
        parameters: (L, ...) by name, where the loss was evaluated.
        state: `FirstOrder.state_of`.
        found: The loss (L,), and its gradients (L, ...) by name.
        rates: `FirstOrder.constants` and those of the step, (L, 1) but for `MOVES`.
    """
    loss, gradients = found
    masks, rates = under(MOVES, rates), {name: value for name, value in rates.items() if not is_mask(name)}
    state["is_finite"].logical_and_(torch.isfinite(loss))
    if _CLIP in rates:
        gradients = clipped(gradients, rates[_CLIP][:, 0])
    for name, theta in parameters.items():
        slots = {slot: state[f"{slot}/{name}"] for slot in rule.slots if f"{slot}/{name}" in state}
        own = rates if theta.dim() == 2 else {rate: _per_lane(value, theta) for rate, value in rates.items()}
        before = theta.clone() if name in masks else theta
        rule.update(theta, gradients[name], slots, own)
        if name in masks:
            theta.copy_(torch.where(masks[name], theta, before))
    state["steps"].add_(state["is_finite"])


def is_mask(name: str) -> bool:
    """Whether a rate of this name is a mask of `MOVES`."""
    return name.startswith(f"{MOVES}/")


def schedule_factor(settings: Settings, step: int | Tensor, *, falls: bool) -> Tensor:
    """(L, 1) share of `learning_rate` used at a step, or (S, L, 1) at steps (S, 1, 1).

    It rises linearly over `warmup_steps`, and is then constant or a cosine to 0.

    The rise starts at 1 / warmup_steps and has ended when step = warmup_steps - 1; the cosine is
    `CosineAnnealingLR`'s over the steps that remain, and would reach 0 at step n_steps. `falls` says whether any does.
    """
    warmup = settings.column("warmup_steps")
    rise = ((step + 1) / warmup.clamp(min=1)).clamp(max=1)
    if not falls:
        return rise
    progress = ((step - warmup) / (settings.n_steps - warmup).clamp(min=1)).clamp(0, 1)
    return torch.where(step < settings.column("cosine_from"), rise, 0.5 * (1 + torch.cos(math.pi * progress)))


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
