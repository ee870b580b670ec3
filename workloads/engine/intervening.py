"""What interventions do to the trainings of a pack, between two steps. Axes: L lane, n place in a row, H head.

A step reads masks and clamps as it reads any tensor of a lane, so trainings with and without interventions share a
program. What no training of a pack asks for is left out of its program.
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
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.interventions import (
    CLAMP,
    Clamp,
    Freeze,
    Intervention,
    Kick,
    boundaries_of,
    interventions_of,
    pattern_number,
)

_MOVES = f"{MOVES}/{ROWS}"
_STREAM = "kick"
_I = TypeVar("_I", bound=Intervention)


def make_room(modules: Sequence[nn.Module], trainings: Iterable[Training[Any]]) -> None:
    """Gives the attention layers in which a training clamps a head their buffer, in all modules.

    Raises:
        SpecError: If there is no such head, or no parameter with a name that is to be frozen.
    """
    asked = dict.fromkeys(each for one in trainings for each in interventions_of(one.parameters.intervention))
    for each in asked:
        if isinstance(each, Freeze):
            _check_name(each, [name for name, value in modules[0].named_parameters() if value.requires_grad])
        if isinstance(each, Clamp):
            for module in modules:
                _make_room(module, each)


def _check_name(freeze: Freeze, names: Sequence[str]) -> None:
    if not any(map(freeze.names, names)):
        known = ", ".join(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
        raise _refused(freeze, f"a name, or part of a name from dot to dot, of {known}", "correct the name")


def _make_room(module: nn.Module, clamp: Clamp) -> None:
    layers: list[Any] = list(_clampable(module).values())
    if clamp.layer >= len(layers) or clamp.head >= layers[clamp.layer].n_heads:
        heads = [f"{layer}:{head}" for layer, each in enumerate(layers) for head in range(each.n_heads)]
        known = f"one of the heads {', '.join(heads)}" if heads else "a model whose attention is attnsweep.Attention"
        raise _refused(clamp, known, "correct LAYER:HEAD" if heads else "remove the clamp")
    layer = layers[clamp.layer]
    setattr(layer, CLAMP, torch.zeros(layer.n_heads, dtype=torch.int64))


def clamp_as(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Gives a module those buffers of a state of it that clamp a head."""
    for name, layer in _clampable(module).items():
        if name in state and state[name].any():
            setattr(layer, CLAMP, state[name])


class Interventions:
    """Changes lanes as their trainings ask.

    Args:
        state: The lanes, before their first step.
        lanes: Their trainings.
    """

    def __init__(self, state: LaneState, lanes: Lanes[Any]) -> None:
        asked = [each for one in lanes.trainings for each in interventions_of(one.parameters.intervention)]
        self._boundaries = sorted({0, *boundaries_of(asked)}) if asked else []
        self._has_masks = any(isinstance(each, Freeze) for each in asked)
        self._layers = list(_clampable(state.problem.template))
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
        """Freezes and clamps what is frozen and clamped at a step."""
        since = max((each for each in self._boundaries if each <= step), default=None)
        if since == self._held_since:
            return
        self._held_since = since
        if self._has_masks:
            state.stepping.constants[_MOVES] = _moves(state, lanes, step)
        state.buffers |= self.held(state.buffers, lanes, [step] * len(lanes.trainings))
        _renew(state)

    def held(self, buffers: State, lanes: Lanes[Any], steps: Sequence[int]) -> State:
        """Those of the buffers (L, ...) that clamp heads, by name, as they are at a step of each lane."""
        found = {}
        for number, name in enumerate(self._layers):
            if name in buffers:
                found[name] = torch.zeros_like(buffers[name])
                for lane, (training, step) in enumerate(zip(lanes.trainings, steps, strict=True)):
                    for each in _of_kind(training, Clamp):
                        if each.layer == number and step in each.steps:
                            found[name][lane, each.head] = pattern_number(each.pattern)
        return found


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


def _clampable(module: nn.Module) -> dict[str, nn.Module]:
    """The attention layers in which heads can be clamped, by the name of their buffer."""
    return {f"{name}.{CLAMP}".lstrip("."): each for name, each in module.named_modules() if CLAMP in each._buffers}


def _of_kind(training: Training[Any], kind: type[_I]) -> list[_I]:
    return [each for each in interventions_of(training.parameters.intervention) if isinstance(each, kind)]


def _refused(given: object, expected: str, fix: str) -> SpecError:
    return SpecError("intervention", given=str(given), expected=expected, fix=fix)
