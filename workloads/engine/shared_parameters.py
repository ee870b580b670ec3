"""Restricts the `TrainingParameters` stored in a module to values that are the same for all trainings of a program."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import TrainingParameters

OF_THE_ENGINE = frozenset(TrainingParameters.declared())
"""The parameters that all workloads have, such as the learning rate. A module must not depend on them."""


def share_parameters(modules: Sequence[nn.Module]) -> None:
    """Replaces the `TrainingParameters` that modules store by ones that raise if an unshared parameter is read."""
    for name, owner in modules[0].named_modules():
        for attribute, stored in list(vars(owner).items()):
            if isinstance(stored, TrainingParameters):
                owners = [vars(module.get_submodule(name)) for module in modules]
                shared = _shared([attributes[attribute] for attributes in owners])
                for attributes in owners:
                    attributes[attribute] = shared


def unshared_names(parameters: TrainingParameters) -> frozenset[str]:
    """Returns the names of parameters that raise when read, because they differ between trainings of a pack."""
    names: frozenset[str] = getattr(type(parameters), "_unshared", frozenset())
    return names


def _shared(parameters: Sequence[TrainingParameters]) -> TrainingParameters:
    first = parameters[0]
    unshared = frozenset(
        name
        for name, declared in first.declared().items()
        if not declared.static
        and (name in OF_THE_ENGINE or any(getattr(other, name) != getattr(first, name) for other in parameters))
    )
    kind: Any = type(first)

    def read(self: TrainingParameters, name: str) -> Any:
        if name in unshared:
            raise SpecError(
                name,
                given="an access to this parameter by a module that has stored the parameters of its training",
                expected="access to static parameters only, because one module serves all trainings that share a"
                " program",
                fix=f"register the value as a buffer in `build`, or declare {name} with static=True",
            )
        return kind.__getattribute__(self, name)

    attributes = {
        "__getattribute__": read,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "_unshared": unshared,
    }
    shared: TrainingParameters = object.__new__(type(kind.__name__, (kind,), attributes))
    vars(shared).update(vars(first))
    return shared
