"""The modules of a pack's trainings. What building them draws is a function of each training's parameters and seed."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnsweep.workloads.engine.constants import first_difference
from attnsweep.workloads.engine.contract import Lanes, Training, Workload
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.streams import generator_seed
from attnsweep.workloads.engine.trainable import check_trainable
from attnsweep.workloads.errors import SpecError

_STREAM = "build"
_NUMPY_SEEDS = 2**32


def built_modules(workload: Workload[Any], lanes: Lanes[Any]) -> tuple[list[nn.Module], nn.Module]:
    """The module of each training in the type of the lanes, and that of the first one once more.

    The global generators of PyTorch (on the CPU), NumPy and Python are seeded for each training, and are afterwards as
    they were.
    """
    with _generators_kept():
        *modules, again = (_built(workload, each).to(lanes.dtype) for each in (*lanes.trainings, lanes.trainings[0]))
    return modules, again


def built_alone(workload: Workload[Any], training: Training[Any]) -> nn.Module:
    """The module of one training, in the types that `build` gave it."""
    with _generators_kept():
        return _built(workload, training)


def check_built_again(module: nn.Module, again: nn.Module, start: State) -> None:
    """Refuses a module that is another when it is built again for the same training.

    Args:
        module, again: The two.
        start: Where the training starts, by name: what it does not start with may differ.

    Raises:
        SpecError: For the first value that differs.
    """
    values, others = _tensors(module), _tensors(again)
    for name, value in values.items():
        if not _is_same(value, others[name]) and _is_same(value, start[name]):
            raise _built_otherwise(name)
    constant = first_difference([module, again])
    if constant is not None:
        raise _built_otherwise(constant.name)


def _built_otherwise(name: str) -> SpecError:
    return SpecError(
        f"{name} of the module",
        given="another value when the module of the same training is built again",
        expected="one that follows from the training's parameters and seed",
        fix="in `build`, draw from the global generator of PyTorch, NumPy or Python, which are seeded for each"
        " training, not from one of your own, and leave no memory of torch.empty unset",
    )


def _built(workload: Workload[Any], training: Training[Any]) -> nn.Module:
    seed = generator_seed(training.seed, _STREAM)
    # Not torch.manual_seed, which also seeds the generators of GPUs.
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % _NUMPY_SEEDS)  # The one that users' code may draw from.
    random.seed(seed)
    module = workload.build(training.parameters)
    check_trainable(module)
    return module


@contextmanager
def _generators_kept() -> Iterator[None]:
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _tensors(module: nn.Module) -> State:
    return {name: value.detach() for name, value in (*module.named_parameters(), *module.named_buffers())}


def _is_same(one: Tensor, other: Tensor) -> bool:
    other = other.to(one)
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())
