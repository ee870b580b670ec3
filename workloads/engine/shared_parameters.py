"""Parameters that a module has stored: it may read what holds for all trainings of its program, and nothing else."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import TrainingParameters

OF_THE_ENGINE = frozenset(TrainingParameters.declared())
"""What all trainings have. A module is not made of the learning rate."""


def share_parameters(modules: Sequence[nn.Module]) -> None:
    """Makes the parameters that the modules have as attributes refuse to be read where they are not shared."""
    for name, owner in modules[0].named_modules():
        for attribute, stored in list(vars(owner).items()):
            if isinstance(stored, TrainingParameters):
                owners = [vars(module.get_submodule(name)) for module in modules]
                shared = _shared([each[attribute] for each in owners])
                for each in owners:
                    each[attribute] = shared


def unshared_names(parameters: TrainingParameters) -> frozenset[str]:
    """The parameters that these refuse to give."""
    found: frozenset[str] = getattr(type(parameters), "_unshared", frozenset())
    return found


def _shared(of_lanes: Sequence[TrainingParameters]) -> TrainingParameters:
    first = of_lanes[0]
    unshared = frozenset(
        name
        for name, each in first.declared().items()
        if not each.static
        and (name in OF_THE_ENGINE or any(getattr(other, name) != getattr(first, name) for other in of_lanes))
    )
    kind: Any = type(first)

    def read(self: TrainingParameters, name: str) -> Any:
        if name in unshared:
            raise SpecError(
                name,
                given="a read of it by a module that stored its parameters",
                expected="static parameters: one module trains all trainings of a program",
                fix=f"in `build`, make it a buffer, or declare {name} with static=True",
            )
        return kind.__getattribute__(self, name)

    attributes = {
        "__getattribute__": read,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "_unshared": unshared,
    }
    made: TrainingParameters = object.__new__(type(kind.__name__, (kind,), attributes))
    vars(made).update(vars(first))
    return made
