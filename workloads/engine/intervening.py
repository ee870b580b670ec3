"""Carries out interventions between two steps of a pack.

A step reads masks, clamps and factors of logits from tensors with one row per training, so trainings with and without
interventions share a program. Kinds that no training of a pack has are left out. Axes: L training.
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
    """Sets in all trainings' attention layers the buffers of clamps and factors that some training has; refuses heads,
    patterns and names that the model lacks."""
    interventions = dict.fromkeys(
        intervention for training in trainings for intervention in interventions_of(training.parameters.intervention)
    )
    for intervention in interventions:
        if isinstance(intervention, Freeze):
            names = [name for name, value in modules[0].named_parameters() if value.requires_grad]
            if not any(map(intervention.names, names)):
                known = ", ".join(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
                parts = "neighbouring parts of it, such as query of attention.query.weight"
                expected = f"the name of a parameter, or {parts}; the names begin with {known}"
                raise refused(intervention, expected, "correct the parameter's name in the intervention")
        if isinstance(intervention, Clamp | Scale):
            for module in modules:
                _make_room(module, intervention)


def _make_room(module: nn.Module, intervention: Clamp | Scale) -> None:
    layers: list[Any] = list(_attention_layers(module).values())
    if not layers:
        raise refused(intervention, "a model whose attention is attnsweep.Attention", "remove the intervention")
    number, head = intervention.layer, intervention.head
    if number is not None and head is not None:
        if number >= len(layers) or head >= layers[number].n_heads:
            heads = ", ".join(f"{at}:{head}" for at, layer in enumerate(layers) for head in range(layer.n_heads))
            raise refused(intervention, f"one of the heads {heads}", "correct LAYER:HEAD")
        layers = [layers[number]]
    for layer in layers:
        if isinstance(intervention, Scale):
            (weight, *_) = layer.parameters()
            setattr(layer, LOGIT_FACTOR, torch.ones(layer.n_heads, dtype=weight.dtype))
        elif intervention.pattern in layer.patterns:
            setattr(layer, CLAMP, torch.zeros(layer.n_heads, dtype=torch.int64))
        else:
            patterns = " or ".join(layer.patterns)
            expected = f"the pattern {patterns}, because queries and keys of this layer are of two texts"
            raise refused(intervention, expected, "choose one of these patterns")


def hold_as(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Clamps a module's heads and scales their logits as the buffers in `state` say."""
    for layer_name, layer in _attention_layers(module).items():
        for buffer, neutral in NEUTRAL.items():
            value = state.get(_joined(layer_name, buffer))
            if value is not None and (value != neutral).any():
                setattr(layer, buffer, value)


class Interventions:
    def __init__(self, state: LaneState, lanes: Lanes[Any]) -> None:
        texts = [training.parameters.intervention for training in lanes.trainings]
        interventions = [intervention for text in texts for intervention in interventions_of(text)]
        self._boundaries = sorted({0, *boundaries_of(interventions)}) if interventions else []
        self._has_masks = any(isinstance(intervention, Freeze) for intervention in interventions)
        self._layers = list(_attention_layers(state.blueprint.template))
        self._held_since: int | None = None
        self.hold(state, lanes, 0)

    def next_after(self, step: int, until: int) -> int:
        """The next step at which an intervention begins, ends or kicks; `until` if none does before it."""
        return min((boundary for boundary in self._boundaries if step < boundary < until), default=until)

    def begin(self, state: LaneState, lanes: Lanes[Any], step: int) -> None:
        """Carries out what is due just before the training takes `step`."""
        self.hold(state, lanes, step)
        if step in self._boundaries:
            for lane, training in enumerate(lanes.trainings):
                for number, kick in enumerate(_of_kind(training, Kick)):
                    if kick.steps.start == step:
                        _kick(state, lanes, lane, kick.size, f"{_STREAM}/{number}")

    def hold(self, state: LaneState, lanes: Lanes[Any], step: int) -> None:
        """Sets what is frozen, clamped and scaled in all trainings at one step."""
        since = max((boundary for boundary in self._boundaries if boundary <= step), default=None)
        if since == self._held_since:
            return
        self._held_since = since
        if self._has_masks:
            state.stepping.constants[_MOVES] = _moves(state, lanes, step)
        state.buffers |= self.held(state.buffers, lanes, [step] * len(lanes.trainings))
        _renew(state)

    def held(self, buffers: State, lanes: Lanes[Any], steps: Sequence[int]) -> State:
        """The buffers of clamps and factors, for each training at its own step."""
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
    """A row per training, false where a parameter is frozen at this step."""
    frozen = [[freeze for freeze in _of_kind(training, Freeze) if step in freeze.steps] for training in lanes.trainings]
    moves = {}
    for name, value in state.parameters.items():
        moves_L = torch.tensor([not any(freeze.names(name) for freeze in freezes) for freezes in frozen])
        moves[name] = moves_L.to(value.device).view(-1, *[1] * (value.dim() - 1)).expand(value.shape)
    return state.blueprint.layout.rows(moves)


def _kick(state: LaneState, lanes: Lanes[Any], lane: int, size: float, stream: str) -> None:
    streams = lanes.select(torch.tensor([lane], device=lanes.device)).streams
    drawn = {
        name: streams.normal(f"{stream}/{name}", tuple(value.shape[1:]), state.stepping.n_updates)
        for name, value in state.parameters.items()
    }
    # The norm of one row: a sum over several may add in another order.
    noise, row = state.blueprint.layout.rows(drawn)[0], state.rows[lane].double()
    kicked = row + noise * (size * row.norm() / noise.norm())
    masks = state.stepping.constants
    state.rows[lane] = torch.where(masks[_MOVES][lane], kicked, row) if _MOVES in masks else kicked
    _renew(state)


def _renew(state: LaneState) -> None:
    """A `Resident` copies the parameters anew if the tensor is another one."""
    state.rows = state.rows.clone()


def _attention_layers(module: nn.Module) -> dict[str, nn.Module]:
    return {name: layer for name, layer in module.named_modules() if CLAMP in layer._buffers}


def _joined(layer: str, buffer: str) -> str:
    return f"{layer}.{buffer}".lstrip(".")


def _of_kind(training: Training[Any], kind: type[_I]) -> list[_I]:
    interventions = interventions_of(training.parameters.intervention)
    return [intervention for intervention in interventions if isinstance(intervention, kind)]
