"""What `build` may return."""

from collections import defaultdict
from itertools import combinations

import torch
from torch import Tensor, nn

from attnsweep.workloads.errors import SpecError

_COMPILED = "OptimizedModule"
"""The class of what torch.compile returns. To import it takes seconds."""


def check_trainable(module: object) -> None:
    """Refuses what no training can start from.

    Raises:
        SpecError: If it is no module, or one that is compiled, has nothing to train, or has tensors that the engine
            could not give to each training.
    """
    if not isinstance(module, nn.Module):
        raise SpecError("build", given=module, expected="an nn.Module", fix="return the module of one training")
    for name, each in module.named_modules():
        if isinstance(each, torch.jit.ScriptModule) or type(each).__name__ == _COMPILED:
            raise SpecError(
                name or "build",
                given="a module of torch.compile or torch.jit",
                expected="the module itself: the engine compiles it, with those of the other trainings",
                fix="leave torch.compile or torch.jit out",
            )
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    for name, value in tensors.items():
        _check_tensor(name, value)
    trained = [name for name, value in tensors.items() if value.requires_grad]
    if not trained:
        raise SpecError(
            "build",
            given="a module without a parameter that requires gradients",
            expected="something to train",
            fix="make what is trained an nn.Parameter, or a layer that has one",
        )
    _check_memory(tensors)


def _check_tensor(name: str, value: Tensor) -> None:
    if nn.parameter.is_lazy(value):
        raise SpecError(
            f"{name} of the module",
            given="a tensor without a shape, as in nn.LazyLinear",
            expected="shapes that `build` knows",
            fix="call the module once in `build`, on an example, or use nn.Linear",
        )
    if value.requires_grad and _overlaps_itself(value):
        raise SpecError(
            f"{name} of the module",
            given="numbers in the same memory, as expand makes them",
            expected="memory of its own for each",
            fix="make it a .clone()",
        )
    if value.is_complex():
        raise SpecError(
            f"{name} of the module",
            given="complex numbers",
            expected="real parameters and buffers",
            fix="keep torch.view_as_real of it, and compute with torch.view_as_complex",
        )


def _check_memory(tensors: dict[str, Tensor]) -> None:
    """A step would change both tensors in plain PyTorch, and one of them in the engine."""
    sharing = defaultdict[int, list[str]](list)
    for name, value in tensors.items():
        if value.numel() and not value.is_meta:
            sharing[value.untyped_storage().data_ptr()].append(name)
    for one, other in (pair for names in sharing.values() for pair in combinations(names, 2)):
        if any(tensors[name].requires_grad for name in (one, other)) and _overlap(tensors[one], tensors[other]):
            raise SpecError(
                f"{one} and {other} of the module",
                given="tensors in the same memory",
                expected="memory of its own for each",
                fix="make one of them a .clone(), or tie them: give both places the same nn.Parameter",
            )


def _overlaps_itself(value: Tensor) -> bool:
    return any(size > 1 and stride == 0 for size, stride in zip(value.shape, value.stride(), strict=True))


def _overlap(one: Tensor, other: Tensor) -> bool:
    return max(one.data_ptr(), other.data_ptr()) < min(_end(one), _end(other))


def _end(value: Tensor) -> int:
    """The address behind its last number."""
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return value.data_ptr() + (last + 1) * value.element_size()
