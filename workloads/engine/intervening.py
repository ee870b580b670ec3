"""Carries out the interventions of the trainings of a pack, between two steps.

Axes: L lane, n place in a row, H head.

A step reads masks, clamps and logit factors as it reads any tensor of a lane, so trainings with and without
interventions share a program. What no training of a pack asks for is left out of its program.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.first_order import MOVES
from attnsweep.workloads.engine.lane_state import LaneState
from attnsweep.workloads.engine.layout import ROWS
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.interventions import (
    CLAMP,
    LOGIT_FACTOR,
    NEUTRAL,
    Clamp,
    Freeze,
    Intervention,
    Kick,
    Scale,
    boundaries_of,
    interventions_of,
    pattern_number,
    refused,
)

_MOVES = f"{MOVES}/{ROWS}"
_STREAM = "kick"
_I = TypeVar("_I", bound=Intervention)


def make_room(modules: Sequence[nn.Module], trainings: Iterable[Training[Any]]) -> None:
    """Gives the attention layers in which a training clamps or scales a head their buffers, in all modules.

    Raises:
        SpecError: If a model does not have the head, its layer cannot take the pattern, or no parameter has the name
            that is to be frozen.
    """
    asked = dict.fromkeys(each for one in trainings for each in interventions_of(one.parameters.intervention))
    for each in asked:
        if isinstance(each, Freeze):
            _check_name(each, [name for name, value in modules[0].named_parameters() if value.requires_grad])
        if isinstance(each, Clamp | Scale):
            for module in modules:
                _make_room(module, each)


def _check_name(freeze: Freeze, names: Sequence[str]) -> None:
    if not any(map(freeze.names, names)):
        known = ", ".join(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
        raise refused(freeze, f"a name, or part of a name from dot to dot, of {known}", "correct the name")


def _make_room(module: nn.Module, intervention: Clamp | Scale) -> None:
    layers: list[Any] = list(_attention_layers(module).values())
    if not layers:
        raise refused(intervention, "a model whose attention is attnsweep.Attention", "remove it")
    number, head = intervention.layer, intervention.head
    if number is not None and head is not None:
        if number >= len(layers) or head >= layers[number].n_heads:
            heads = ", ".join(f"{layer}:{head}" for layer, each in enumerate(layers) for head in range(each.n_heads))
            raise refused(intervention, f"one of the heads {heads}", "correct LAYER:HEAD")
        layers = [layers[number]]
    for layer in layers:
        if isinstance(intervention, Scale):
            (weight, *_) = layer.parameters()
            setattr(layer, LOGIT_FACTOR, torch.ones(layer.n_heads, dtype=weight.dtype))
        elif intervention.pattern in layer.patterns:
            setattr(layer, CLAMP, torch.zeros(layer.n_heads, dtype=torch.int64))
        else:
            expected = f"{' or '.join(layer.patterns)}: the queries and keys of this layer are of two texts"
            raise refused(intervention, expected, "choose one of these patterns")


def hold_as(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Gives a module those buffers of a state of it in which a head is clamped or scaled."""
    for layer_name, layer in _attention_layers(module).items():
        for buffer, neutral in NEUTRAL.items():
            value = state.get(_joined(layer_name, buffer))
            if value is not None and (value != neutral).any():
                setattr(layer, buffer, value)


class Interventions:
    """Changes lanes as the interventions of their trainings say.

    Args:
        state: The lanes, before their first step.
        lanes: Their trainings.
    """

    def __init__(self, state: LaneState, lanes: Lanes[Any]) -> None:
        asked = [each for one in lanes.trainings for each in interventions_of(one.parameters.intervention)]
        self._boundaries = sorted({0, *boundaries_of(asked)}) if asked else []
        self._has_masks = any(isinstance(each, Freeze) for each in asked)
        self._layers = list(_attention_layers(state.problem.template))
        self._held_since: int | None = None
        self.hold(state, lanes, 0)

    def next_after(self, step: int, until: int) -> int:
        """The step up to which nothing changes after this one, at most `until`."""
        return min((each for each in self._boundaries if step < each < until), default=until)

    def begin(self, state: LaneState, lanes: Lanes[Any], step: int) -> None:
        """Does what is due right before a step is taken."""
        self.hold(state, lanes, step)
        if step in self._boundaries:
            for lane, training in enumerate(lanes.trainings):
                for number, each in enumerate(_of_kind(training, Kick)):
                    if each.step == step:
                        _kick(state, lanes, lane, each.size, f"{_STREAM}/{number}")

    def hold(self, state: LaneState, lanes: Lanes[Any], step: int) -> None:
        """Freezes, clamps and scales what the trainings hold at a step."""
        since = max((each for each in self._boundaries if each <= step), default=None)
        if since == self._held_since:
            return
        self._held_since = since
        if self._has_masks:
            state.stepping.constants[_MOVES] = _moves(state, lanes, step)
        state.buffers |= self.held(state.buffers, lanes, [step] * len(lanes.trainings))
        _renew(state)

    def held(self, buffers: State, lanes: Lanes[Any], steps: Sequence[int]) -> State:
        """Returns those of the buffers (L, ...) that clamp or scale heads, by name, as they are at a step of each lane.

        Args:
            buffers: All buffers of the lanes.
            lanes: Their trainings.
            steps: The step of each lane.
        """
        held = {
            name: torch.full_like(buffers[name], neutral)
            for layer_name in self._layers
            for buffer, neutral in NEUTRAL.items()
            if (name := _joined(layer_name, buffer)) in buffers
        }
        for lane, (training, step) in enumerate(zip(lanes.trainings, steps, strict=True)):
            for clamp in _of_kind(training, Clamp):
                if step in clamp.steps:
                    held[self._buffer(clamp.layer, CLAMP)][lane, clamp.head] = pattern_number(clamp.pattern)
            for scale in _of_kind(training, Scale):
                if step in scale.steps:
                    numbers = range(len(self._layers)) if scale.layer is None else [scale.layer]
                    heads = slice(None) if scale.head is None else scale.head
                    for number in numbers:
                        held[self._buffer(number, LOGIT_FACTOR)][lane, heads] *= scale.factor
        return held

    def _buffer(self, layer: int, buffer: str) -> str:
        return _joined(self._layers[layer], buffer)


def _moves(state: LaneState, lanes: Lanes[Any], step: int) -> Tensor:
    """(L, n) which numbers a step moves."""
    frozen = [[each for each in _of_kind(one, Freeze) if step in each.steps] for one in lanes.trainings]
    found = {}
    for name, value in state.parameters.items():
        moves_L = torch.tensor([not any(each.names(name) for each in of_lane) for of_lane in frozen])
        found[name] = moves_L.to(value.device).view(-1, *[1] * (value.dim() - 1)).expand(value.shape)
    return state.problem.layout.rows(found)


def _kick(state: LaneState, lanes: Lanes[Any], lane: int, size: float, stream: str) -> None:
    """Adds noise to a lane, of this norm relative to its own."""
    streams = lanes.select(torch.tensor([lane], device=lanes.device)).streams
    drawn = {
        name: streams.normal(f"{stream}/{name}", tuple(value.shape[1:]), state.stepping.n_updates)
        for name, value in state.parameters.items()
    }
    # One row at a time, in double precision: a sum over several rows may add in another order.
    noise, row = state.problem.layout.rows(drawn)[0], state.rows[lane].double()
    kicked = row + noise * (size * row.norm() / noise.norm())
    masks = state.stepping.constants
    state.rows[lane] = torch.where(masks[_MOVES][lane], kicked, row) if _MOVES in masks else kicked
    _renew(state)


def _renew(state: LaneState) -> None:
    """Captured steps keep a copy of a state in memory of their own, which is loaded again where its rows are new."""
    state.rows = state.rows.clone()


def _attention_layers(module: nn.Module) -> dict[str, nn.Module]:
    """Returns the attention layers in which heads can be clamped and scaled, by name, numbered as in `heads`."""
    return {name: each for name, each in module.named_modules() if CLAMP in each._buffers}


def _joined(layer: str, buffer: str) -> str:
    return f"{layer}.{buffer}".lstrip(".")


def _of_kind(training: Training[Any], kind: type[_I]) -> list[_I]:
    return [each for each in interventions_of(training.parameters.intervention) if isinstance(each, kind)]
