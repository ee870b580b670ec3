"""Objectives for diagnostics: the reduced systems, and functions with known answers."""

import torch
from torch import Tensor, nn

from attnsweep.workloads.category_pairs.categories_only import CategoriesOnly
from attnsweep.workloads.category_pairs.positions_only import PositionsOnly
from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import Streams


def system_lanes(system: PositionsOnly | CategoriesOnly, n_lanes: int, sigma: float) -> tuple[Objective, State]:
    """The population loss of a system, with random tasks and starting points per lane."""
    system = system.double()
    streams = Streams(torch.arange(n_lanes))
    parameters, tasks = (
        {name: streams.normal(name, tuple(value.shape)) for name, value in named}
        for named in (system.named_parameters(), system.named_buffers())
    )
    objective = Objective(system, lambda module, _: population_loss(module), tasks, {})
    return objective, {name: sigma * value for name, value in parameters.items()}


def population_loss(system: nn.Module) -> Tensor:
    assert isinstance(system, PositionsOnly | CategoriesOnly)
    return system.population_loss()


class Point(nn.Module):
    """One vector x and a task."""

    task: Tensor

    def __init__(self, n: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(n, dtype=torch.float64))
        self.register_buffer("task", torch.zeros(n, dtype=torch.float64))
