"""Builds a pack's modules, checks them, and makes the initial state. Axes: L training."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.constants import first_difference
from attnsweep.workloads.engine.contract import Lanes, P, Training, Workload
from attnsweep.workloads.engine.intervening import make_room
from attnsweep.workloads.engine.layout import in_type
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import generator_seed
from attnsweep.workloads.errors import SpecError

_STREAM = "build"
_NUMPY_SEEDS = 2**32


def built_alone(workload: Workload[Any], training: Training[Any]) -> nn.Module:
    """One training's module, in the types that `build` chooses."""
    with seeded_generators():
        return _built(workload, training)


def check_built_again(module: nn.Module, rebuilt: nn.Module, start: State) -> None:
    """Refuses a `build` that gives different modules for one training, but for values that `start` replaces."""
    values, others = tensors_of(module), tensors_of(rebuilt)
    for name, value in values.items():
        if not _is_same(value, others[name]) and _is_same(value, start[name]):
            raise _built_otherwise(name)
    constant = first_difference([module, rebuilt])
    if constant is not None:
        raise _built_otherwise(constant.name)


def _built_otherwise(name: str) -> SpecError:
    given = "another value when the module of the same training is built again"
    fix = "in `model`, draw from the global generators, which are seeded for every training, and fill torch.empty"
    return SpecError(f"{name} of the module", given=given, expected="a value that parameters and seed give", fix=fix)


def _built(workload: Workload[Any], training: Training[Any]) -> nn.Module:
    _seed(generator_seed(training.seed, _STREAM))
    module = workload.build(training.parameters)
    check_trainable(module)
    return module


def _seed(seed: int) -> None:
    # `torch.manual_seed` would also seed the generators of GPUs, whose states are not restored.
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % _NUMPY_SEEDS)
    random.seed(seed)


@contextmanager
def seeded_generators(seed: int = 0) -> Iterator[None]:
    """Within, the global generators of PyTorch, NumPy and Python start from a seed; their states return at its end."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            _seed(seed)
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def tensors_of(module: nn.Module) -> State:
    """Parameters and buffers by name; a tied tensor under its first name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _is_same(one: Tensor, other: Tensor) -> bool:
    other = other.to(one)
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())


_COMPILED = "OptimizedModule"
"""The class that torch.compile returns, by name: importing it would take seconds."""


def check_trainable(module: object) -> None:
    """Refuses what the engine cannot train: no module, a compiled one, or one without parameters to train."""
    if not isinstance(module, nn.Module):
        fix = "return the nn.Module of one training"
        raise SpecError("model", given=module, expected="a function `model` that returns an nn.Module", fix=fix)
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule) or type(part).__name__ == _COMPILED:
            expected = "a module that is not compiled, because the engine compiles it"
            fix = "leave out torch.compile or torch.jit"
            raise SpecError(name or "model", given="a module of torch.compile or torch.jit", expected=expected, fix=fix)
    tensors = tensors_of(module)
    for name, value in tensors.items():
        _check_tensor(name, value)
    if not any(value.requires_grad for value in tensors.values()):
        given = "a module without a parameter that requires gradients"
        fix = "make the trained tensor an nn.Parameter, or use layers that have parameters"
        raise SpecError("model", given=given, expected="a module with at least one parameter to train", fix=fix)
    by_address: dict[int, str] = {}
    for name, value in tensors.items():
        other = name if value.is_meta or not value.numel() else by_address.setdefault(value.data_ptr(), name)
        if other != name and (value.requires_grad or tensors[other].requires_grad):
            given, fix = "two tensors in the same memory", "use the same nn.Parameter in both places, or a .clone()"
            raise SpecError(f"{other} and {name} of the module", given=given, expected="memory of its own", fix=fix)


def _check_tensor(name: str, value: Tensor) -> None:
    if nn.parameter.is_lazy(value):
        given, expected = "a tensor without a shape, as in nn.LazyLinear", "tensors whose shapes are known"
        fix = "call the module once in `model`, on an example, or use nn.Linear"
    elif value.is_complex():
        given, expected = "complex numbers", "real parameters and buffers"
        fix = "store torch.view_as_real of the tensor, and compute with torch.view_as_complex"
    else:
        return
    raise SpecError(f"the parameter or buffer {name} of the module", given=given, expected=expected, fix=fix)


def starting_state(
    workload: Workload[P], lanes: Lanes[P], start: State | None = None
) -> tuple[State, State, nn.Module]:
    """Initial parameters and buffers, (L, ...) by name, and one training's module as template. Values in `start`, of
    any floating-point type, replace the workload's."""
    modules, rebuilt = check_alike(workload, lanes)
    tensors = [tensors_of(module) for module in modules]
    built = {name: torch.stack([own[name].detach() for own in tensors]).to(lanes.device) for name in tensors[0]}
    template = modules[0].to(lanes.device)
    # A parameter that requires no gradient is treated like a buffer: `initial` need not draw it.
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
    check_built_again(template, rebuilt, {name: value[0] for name, value in stacked.items()})
    return (
        {name: stacked[name] for name in parameters},
        {name: stacked[name] for name in built if name not in parameters},
        template,
    )


def check_alike(workload: Workload[Any], lanes: Lanes[Any]) -> tuple[list[nn.Module], nn.Module]:
    """Builds all trainings' modules, which may not differ in a constant, and the first one again."""
    with seeded_generators():
        *modules, rebuilt = (
            _built(workload, training).to(lanes.dtype) for training in (*lanes.trainings, lanes.trainings[0])
        )
    make_room([*modules, rebuilt], lanes.trainings)
    difference = first_difference(modules)
    if difference is not None:
        given = f"the value {difference.one} in one training's module and the value {difference.other} in another's"
        expected = "the same value for all trainings that share a program, or a buffer"
        fix = "compute with self.NAME = at.per_lane(value), or declare the parameter that sets it with static=True"
        raise SpecError(f"{difference.name} of the module", given=given, expected=expected, fix=fix)
    return modules, rebuilt
