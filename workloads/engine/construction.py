"""Builds the modules of a pack's trainings. Random draws in `build` depend only on a training's parameters and seed."""

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
    """Builds the modules of all trainings in the lanes' dtype, and the first module twice, for comparison.

    The global generators of PyTorch (on the CPU), NumPy and Python are seeded for every training, and their states are
    restored afterwards.
    """
    with _generators_kept():
        *modules, again = (
            _built(workload, training).to(lanes.dtype) for training in (*lanes.trainings, lanes.trainings[0])
        )
    return modules, again


def built_alone(workload: Workload[Any], training: Training[Any]) -> nn.Module:
    """Builds one training's module with the dtypes that the user's `build` gives it."""
    with _generators_kept():
        return _built(workload, training)


def check_built_again(module: nn.Module, again: nn.Module, start: State) -> None:
    """Refuses a workload whose `build` gives different modules for the same training.

    Args:
        module, again: Two modules that were built for the same training.
        start: The initial state by name. A value of `module` that was replaced there may differ.

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
        expected="a value that follows from the training's parameters and seed",
        fix="in `build`, draw from the global generators of PyTorch, NumPy or Python, which are seeded for every"
        " training, not from a generator of your own, and fill all memory of torch.empty",
    )


def _built(workload: Workload[Any], training: Training[Any]) -> nn.Module:
    seed = generator_seed(training.seed, _STREAM)
    # `torch.manual_seed` would also seed the generators of GPUs, whose states this function does not restore
    # afterwards.
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % _NUMPY_SEEDS)  # Users' code may draw from NumPy's global generator.
    random.seed(seed)
    module = workload.build(training.parameters)
    check_trainable(module)
    return module


@contextmanager
def _generators_kept() -> Iterator[None]:
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _tensors(module: nn.Module) -> State:
    return {name: value.detach() for name, value in (*module.named_parameters(), *module.named_buffers())}


def _is_same(one: Tensor, other: Tensor) -> bool:
    other = other.to(one)
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())
