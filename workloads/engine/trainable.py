"""Checks that `build` returned a module that the engine can train."""

from collections import defaultdict
from itertools import combinations

import torch
from torch import Tensor, nn

from attnsweep.workloads.errors import SpecError

_COMPILED = "OptimizedModule"
"""The name of the class that torch.compile returns. Importing the class would take seconds."""


def check_trainable(module: object) -> None:
    """Refuses modules and workloads that the engine cannot train.

    Raises:
        SpecError: If it is not a module; or if the module is compiled, has no parameter to train, or has tensors of
            which the engine cannot make one per training.
    """
    if not isinstance(module, nn.Module):
        raise SpecError(
            "build",
            given=module,
            expected="a function `build` that returns an nn.Module",
            fix="return the nn.Module of one training",
        )
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule) or type(part).__name__ == _COMPILED:
            raise SpecError(
                name or "build",
                given="a module of torch.compile or torch.jit",
                expected="a module that is not compiled: the engine compiles it",
                fix="leave out torch.compile or torch.jit",
            )
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    for name, value in tensors.items():
        _check_tensor(name, value)
    trained = [name for name, value in tensors.items() if value.requires_grad]
    if not trained:
        raise SpecError(
            "build",
            given="a module without a parameter that requires gradients",
            expected="a module with at least one parameter to train",
            fix="make the trained tensor an nn.Parameter, or use layers that have parameters",
        )
    _check_memory(tensors)


def _check_tensor(name: str, value: Tensor) -> None:
    if nn.parameter.is_lazy(value):
        raise SpecError(
            f"{name} of the module",
            given="a tensor without a shape, as in nn.LazyLinear",
            expected="tensors whose shapes are known when `build` returns",
            fix="call the module once in `build`, on an example, or use nn.Linear",
        )
    if value.requires_grad and _overlaps_itself(value):
        raise SpecError(
            f"{name} of the module",
            given="entries that share memory, as made by expand",
            expected="separate memory for every entry",
            fix="add .clone() to the tensor",
        )
    if value.is_complex():
        raise SpecError(
            f"{name} of the module",
            given="complex numbers",
            expected="real parameters and buffers",
            fix="store torch.view_as_real of the tensor, and compute with torch.view_as_complex",
        )


def _check_memory(tensors: dict[str, Tensor]) -> None:
    """Refuses tensors that share memory: a step changes both in plain PyTorch, but only one of them in the engine."""
    sharing = defaultdict[int, list[str]](list)
    for name, value in tensors.items():
        if value.numel() and not value.is_meta:
            sharing[value.untyped_storage().data_ptr()].append(name)
    for one, other in (pair for names in sharing.values() for pair in combinations(names, 2)):
        if any(tensors[name].requires_grad for name in (one, other)) and _overlap(tensors[one], tensors[other]):
            raise SpecError(
                f"{one} and {other} of the module",
                given="two tensors in the same memory",
                expected="separate memory for every tensor",
                fix="replace one of the tensors by its .clone(), or tie them by using the same nn.Parameter in both"
                " places",
            )


def _overlaps_itself(value: Tensor) -> bool:
    return any(size > 1 and stride == 0 for size, stride in zip(value.shape, value.stride(), strict=True))


def _overlap(one: Tensor, other: Tensor) -> bool:
    return max(one.data_ptr(), other.data_ptr()) < min(_end(one), _end(other))


def _end(value: Tensor) -> int:
    """Returns the memory address just after the tensor's last entry."""
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.data_ptr() + (last + 1) * value.element_size()
