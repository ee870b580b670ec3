"""What a module holds besides parameters and buffers: its constants, which a program takes from one training for all.
They are attributes, or values in an attribute's list, dictionary or object; `check_as_plain` finds numbers that hide
elsewhere, such as in a closure."""

import hashlib
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

_OF_EVERY_MODULE = frozenset(vars(nn.Module())) - {"training"}
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, torch.dtype, torch.device, torch.Size, Enum)
_MISSING = "nothing"


def per_lane(value: float | Tensor) -> Tensor:
    """A buffer for a number in which trainings may differ: `self.scale = at.per_lane(scale)` in a module."""
    return nn.Buffer(torch.as_tensor(value, dtype=torch.float64))


class Difference(NamedTuple):
    """A constant that is `one` in the first module and `other` in the one at `position`."""

    name: str
    position: int
    one: str
    other: str


def first_difference(modules: Sequence[nn.Module]) -> Difference | None:
    """The first constant found, such as `blocks.0.norm.eps`, in which a module differs from the first one."""
    first = constants_of(modules[0])
    for position, module in enumerate(modules[1:], 1):
        others = constants_of(module)
        for name in (*first, *others):
            one, other = first.get(name, _MISSING), others.get(name, _MISSING)
            if one != other:
                return Difference(name, position, one, other)
    return None


def digest_of(module: nn.Module) -> str:
    return _hash(repr(sorted(constants_of(module).items())).encode())


def constants_of(module: nn.Module, *, tensors: bool = True) -> dict[str, str]:
    """Texts that tell a module's constants apart, by name; without `tensors`, none of tensors and arrays."""
    found: dict[str, str] = {}
    known = {id(part): f"<{name or 'module'}>" for name, part in module.named_modules()}
    known |= {id(tensor): f"<{name}>" for name, tensor in (*module.named_parameters(), *module.named_buffers())}

    def read(path: str, value: Any) -> None:
        if isinstance(value, _PLAIN):
            found[path] = repr(value)
        elif id(value) in known:
            found[path] = known[id(value)]
        elif not isinstance(value, Tensor | np.ndarray):
            known[id(value)] = f"<{path}>"
            found[path] = getattr(value, "__qualname__", type(value).__qualname__)
            for name, each in _inside(value).items():
                read(f"{path}.{name}", each)
        elif tensors:
            found[path] = f"{value.dtype} {tuple(value.shape)} {_hash(_bytes_of(value))}"

    for prefix, part in module.named_modules():
        found[prefix or "module"] = type(part).__qualname__
        shapes = {name: getattr(value, "shape", None) for name, value in (part._parameters | part._buffers).items()}
        for name, value in (shapes | vars(part)).items():
            if name not in _OF_EVERY_MODULE:
                read(f"{prefix}.{name}" if prefix else name, value)
    return found


def _inside(value: Any) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, set | frozenset):
        return dict(enumerate(sorted(value, key=repr)))
    # Functions, classes and Python modules have a name.
    return {} if hasattr(value, "__name__") else getattr(value, "__dict__", {})


def _bytes_of(value: Tensor | np.ndarray[Any, Any]) -> bytes:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def _hash(content: bytes) -> str:
    return hashlib.blake2s(content, digest_size=8).hexdigest()
