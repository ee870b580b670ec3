"""The state in which the trainings of a pack start."""

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
    """Parameters and buffers (L, ...) by name, and the module of one training.

    Args:
        workload: The problem.
        lanes: The trainings.
        start: What replaces parameters and buffers that the workload draws, by name, in any floating-point type.

    Raises:
        SpecError: If the modules differ in what they hold besides parameters and buffers, or if building one of them
            again gives another.
        TypeError: If the workload's `initial` leaves out a parameter.
    """
    modules, again = _alike(workload, lanes)
    built = {name: value.to(lanes.device) for name, value in _stacked(modules).items()}
    template = modules[0].to(lanes.device)
    # A frozen parameter is a buffer that `initial` may draw.
    parameters = [name for name, value in template.named_parameters() if value.requires_grad]
    initial = workload.initial(template, Lanes(lanes.trainings, lanes.device, built))
    missing = set(parameters) - initial.keys()
    if missing:
        raise TypeError(f"{workload.name}.initial left out the parameters {sorted(missing)}")
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
    """Refuses trainings whose modules differ in what they hold besides parameters and buffers.

    Raises:
        SpecError: As `starting_state`.
    """
    _alike(workload, lanes)


def _alike(workload: Workload[Any], lanes: Lanes[Any]) -> tuple[list[nn.Module], nn.Module]:
    modules, again = built_modules(workload, lanes)
    make_room([*modules, again], lanes.trainings)
    share_parameters([*modules, again])
    _check_constants(lanes, modules)
    return modules, again


def _check_constants(lanes: Lanes[Any], modules: Sequence[nn.Module]) -> None:
    """Refuses modules that are not one module with other parameters and buffers.

    The program of a pack is that of its first module: what differs elsewhere would be lane 0's for all lanes.
    """
    difference = first_difference(modules)
    if difference is None:
        return
    one, other = lanes.trainings[0].parameters, lanes.trainings[difference.position].parameters
    differing = [
        name for name, each in one.declared().items() if not each.static and getattr(one, name) != getattr(other, name)
    ]
    own = [name for name in differing if name not in OF_THE_ENGINE] or differing
    apart = f"declare {' and '.join(own)} with static=True, which trains them apart" if own else ""
    raise SpecError(
        f"{difference.name} of the module",
        given=f"{difference.one} in the module of one training and {difference.other} in that of another",
        expected="the same for all trainings that share a program; only values of parameters and buffers may differ",
        fix=" or ".join(filter(None, ["in `build`, make it a buffer (register_buffer)", apart])),
    )


def _stacked(modules: Sequence[nn.Module]) -> State:
    """(L, ...) the parameters and buffers, by name; a tied one stands under its first name."""
    of_lanes = [{**dict(module.named_parameters()), **dict(module.named_buffers())} for module in modules]
    return {name: torch.stack([each[name].detach() for each in of_lanes]) for name in of_lanes[0]}
