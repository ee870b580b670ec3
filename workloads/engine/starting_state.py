"""Builds the modules of a pack and the initial state of its trainings. Axes: L lane."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from attnsweep.workloads.engine.constants import first_difference
from attnsweep.workloads.engine.construction import built_modules, check_built_again
from attnsweep.workloads.engine.contract import Lanes, P, Workload
from attnsweep.workloads.engine.intervening import make_room
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.precision import in_type
from attnsweep.workloads.engine.shared_parameters import OF_THE_ENGINE, share_parameters
from attnsweep.workloads.errors import SpecError


def starting_state(
    workload: Workload[P], lanes: Lanes[P], start: State | None = None
) -> tuple[State, State, nn.Module]:
    """Returns the initial parameters (L, ...) and buffers (L, ...) by name, and the module of one training.

    Args:
        workload: The problem.
        lanes: The trainings.
        start: Values by name that replace parameters and buffers of the workload, in any floating-point type.

    Raises:
        SpecError: If the modules differ in anything besides parameters and buffers, or building a module twice gives
            different ones.
        TypeError: If the workload's `initial` leaves out a parameter.
    """
    modules, again = _alike(workload, lanes)
    built = {name: value.to(lanes.device) for name, value in _stacked(modules).items()}
    template = modules[0].to(lanes.device)
    # A parameter that requires no gradient is treated like a buffer: `initial` may draw it, but need not.
    parameters = [name for name, value in template.named_parameters() if value.requires_grad]
    initial = workload.initial(template, Lanes(lanes.trainings, lanes.device, built))
    missing = set(parameters) - initial.keys()
    if missing:
        raise TypeError(
            f"{workload.name}.initial: got no values of {sorted(missing)}, expected the values of all trained"
            " parameters"
        )
    stacked = {
        name: value.detach().to(lanes.device)
        for name, value in (built | initial | in_type(start or {}, lanes.dtype)).items()
    }
    check_built_again(template, again, {name: value[0] for name, value in stacked.items()})
    return (
        {name: stacked[name] for name in parameters},
        {name: stacked[name] for name in built if name not in parameters},
        template,
    )


def check_alike(workload: Workload[Any], lanes: Lanes[Any]) -> None:
    """Refuses trainings whose modules differ in anything but the values of parameters and buffers.

    Raises:
        SpecError: If two modules differ in such a constant.
    """
    _alike(workload, lanes)


def _alike(workload: Workload[Any], lanes: Lanes[Any]) -> tuple[list[nn.Module], nn.Module]:
    modules, again = built_modules(workload, lanes)
    make_room([*modules, again], lanes.trainings)
    share_parameters([*modules, again])
    _check_constants(lanes, modules)
    return modules, again


def _check_constants(lanes: Lanes[Any], modules: Sequence[nn.Module]) -> None:
    """Refuses modules that differ in constants: anything but parameters and buffers.

    The pack runs its first module for all lanes, so a constant that differs in another module would be ignored.
    """
    difference = first_difference(modules)
    if difference is None:
        return
    one, other = lanes.trainings[0].parameters, lanes.trainings[difference.position].parameters
    differing = [
        name
        for name, declared in one.declared().items()
        if not declared.static and getattr(one, name) != getattr(other, name)
    ]
    candidates = [name for name in differing if name not in OF_THE_ENGINE] or differing
    apart = f"declare {' and '.join(candidates)} with static=True, which trains them apart" if candidates else ""
    advice = " or ".join(filter(None, ["register the value as a buffer in `build` (register_buffer)", apart]))
    raise SpecError(
        f"{difference.name} of the module",
        given=f"the value {difference.one} in one training's module and the value {difference.other} in another"
        " training's module",
        expected="the same value for all trainings that share a program, because only parameters and buffers may"
        " differ",
        fix=advice,
    )


def _stacked(modules: Sequence[nn.Module]) -> State:
    """Stacks the parameters and buffers of all modules to (L, ...) by name. A tied tensor gets its first name."""
    lanes = [{**dict(module.named_parameters()), **dict(module.named_buffers())} for module in modules]
    return {name: torch.stack([tensors[name].detach() for tensors in lanes]) for name in lanes[0]}
