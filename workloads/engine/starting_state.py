"""The state in which the trainings of a pack start."""

from torch import nn
from torch.func import stack_module_state

from attnsweep.workloads.engine.contract import Lanes, P, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.precision import in_type


def starting_state(
    workload: Workload[P], lanes: Lanes[P], start: State | None = None
) -> tuple[State, State, nn.Module]:
    """Parameters and buffers (L, ...) by name, and the module of one training.

    Args:
        workload: The problem.
        lanes: The trainings.
        start: What replaces parameters and buffers that the workload draws, by name, in any floating-point type.

    Raises:
        TypeError: If the workload's `initial` leaves out a parameter.
    """
    modules = [workload.build(training.parameters).to(lanes.dtype) for training in lanes.trainings]
    parameters, buffers = stack_module_state(modules)
    template = modules[0].to(lanes.device)
    initial = workload.initial(template, lanes)
    missing = parameters.keys() - initial.keys()
    if missing:
        raise TypeError(f"{workload.name}.initial left out the parameters {sorted(missing)}")
    drawn = parameters | buffers | initial | in_type(start or {}, lanes.dtype)
    stacked = {name: value.detach().to(lanes.device) for name, value in drawn.items()}
    return (
        {name: stacked[name] for name in parameters},
        {name: stacked[name] for name in buffers},
        template,
    )
