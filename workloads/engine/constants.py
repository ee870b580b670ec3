"""Compares the constants of modules. A constant is anything that a module holds besides parameters and buffers, such as
a number or a function.

The engine runs one module for all trainings of a pack (one program), so constants must be the same in the modules of
all trainings, and in all later packs that reuse the compiled program. A module may store the parameters of its
training, `TrainingParameters`, but may read only those that all trainings share.
"""

import functools
import hashlib
import pickle
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import TrainingParameters

OF_THE_ENGINE = frozenset(TrainingParameters.declared())
"""The parameters that every workload has, such as the learning rate. A module must not depend on them."""


def share_parameters(modules: Sequence[nn.Module]) -> None:
    """Makes modules raise an error if they read a hyperparameter (a field of `TrainingParameters`) whose value may
    differ between trainings.

    The `TrainingParameters` that the modules store are replaced by guarded copies.
    """
    for name, owner in modules[0].named_modules():
        for attribute, stored in list(vars(owner).items()):
            if isinstance(stored, TrainingParameters):
                owners = [vars(module.get_submodule(name)) for module in modules]
                shared = _shared([attributes[attribute] for attributes in owners])
                for attributes in owners:
                    attributes[attribute] = shared


def unshared_names(parameters: TrainingParameters) -> frozenset[str]:
    """Returns the names of hyperparameters that a module must not read, because they may differ between trainings that
    share a program."""
    return getattr(type(parameters), "_unshared", frozenset())


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
                given=f"a module that reads {name} from its stored parameters",
                expected="a module that reads no parameter in which trainings may differ, because the engine computes"
                " several trainings with one module",
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


_OF_EVERY_MODULE = frozenset(vars(nn.Module())) - {"training"}
"""The attributes of every `nn.Module`: parameters, buffers, submodules and hooks, which do not count as constants."""
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, torch.dtype, torch.device, torch.Size, Enum)
_MISSING = "nothing"


@dataclass(frozen=True, slots=True)
class Difference:
    """A constant (such as a number in an attribute) that differs between the first of several modules and another one.

    Attributes:
        name: The constant's name, such as `blocks.0.norm.eps`.
    """

    name: str
    position: int
    one: str
    other: str


def first_difference(modules: Sequence[nn.Module]) -> Difference | None:
    """Returns the first constant found whose value differs between the first module and another one; `None` if there is
    none. Constants are all that a module holds besides parameters and buffers, such as numbers and functions."""
    first = constants_of(modules[0])
    for position, other in enumerate(modules[1:], 1):
        others = constants_of(other)
        for name in (*first, *others):
            first_value, other_value = first.get(name, _MISSING), others.get(name, _MISSING)
            if first_value != other_value:
                return Difference(name, position, first_value, other_value)
    return None


def digest_of(module: nn.Module) -> str:
    """Hashes a module's constants: all that it holds besides parameters and buffers, such as numbers and functions.
    Modules with the same constants have the same digest in every process."""
    content = repr(sorted(constants_of(module).items()))
    return hashlib.blake2s(content.encode(), digest_size=16).hexdigest()


def constants_of(module: nn.Module, *, tensors: bool = True) -> dict[str, str]:
    """Returns descriptions, by name, of the constants of a module and its submodules: all that they hold besides
    parameters and buffers, such as numbers and functions; without `tensors`, no tensors either.

    An object whose values cannot be read, such as one of a library written in C, is represented by its type.
    """
    return dict(_Reader(module, tensors).of_module())


def _shapes(module: nn.Module) -> dict[str, torch.Size | None]:
    own = module._parameters | module._buffers
    return {name: None if value is None else value.shape for name, value in own.items()}


def _own(module: nn.Module) -> dict[str, Any]:
    """Returns the attributes of one module, without its parameters, buffers and submodules."""
    return {name: value for name, value in vars(module).items() if name not in _OF_EVERY_MODULE}


class _Reader:
    def __init__(self, module: nn.Module, tensors: bool) -> None:
        self._module, self._tensors = module, tensors
        # Parameters, buffers and submodules are not constants. If an attribute refers to one of them, its name is used
        # instead.
        self._known: dict[int, str] = {id(part): f"<{name or 'module'}>" for name, part in module.named_modules()}
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            self._known[id(tensor)] = f"<{name}>"

    def of_module(self) -> Iterator[tuple[str, str]]:
        for name, part in self._module.named_modules():
            yield name or "module", _name_of(type(part))
            yield from self._of_items(f"{name}." if name else "", _shapes(part) | _own(part))

    def _of_items(self, prefix: str, items: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
        for name, value in items.items():
            yield from self._of_value(f"{prefix}{name}", value)

    def _of_value(self, path: str, value: Any) -> Iterator[tuple[str, str]]:
        if isinstance(value, _PLAIN):
            yield path, repr(value)
            return
        if id(value) in self._known:
            yield path, self._known[id(value)]
            return
        if isinstance(value, Tensor) and not self._tensors:
            return
        # The module keeps `value` alive, so no other object can get the same id during the search.
        self._known[id(value)] = f"<{path}>"
        yield path, _in_short(value)
        yield from self._of_items(f"{path}.", _inside(value))


def _in_short(value: Any) -> str:
    """Describes a value by its type and a digest of its content."""
    if isinstance(value, Tensor):
        return _of_numbers(f"{value.dtype} {tuple(value.shape)}", _bytes_of(value))
    if isinstance(value, np.ndarray):
        return _of_numbers(f"{value.dtype} {value.shape}", value.tobytes())
    if isinstance(value, types.FunctionType):
        return _of_numbers(_name_of(value), _code_of(value))
    if isinstance(value, type | types.BuiltinFunctionType | types.ModuleType):
        return _name_of(value)
    if isinstance(value, set | frozenset):
        # An element that is not a plain value is represented by the name of its type, because its `repr` may contain a
        # memory address.
        return repr(sorted(repr(item) if isinstance(item, _PLAIN) else _name_of(type(item)) for item in value))
    if _inside(value) or isinstance(value, list | tuple | Mapping | weakref.ref | nn.Module):
        return _name_of(type(value))
    try:
        return _of_numbers(_name_of(type(value)), pickle.dumps(value))
    except Exception:  # noqa: BLE001  # The value's own code may raise anything when pickled.
        return _name_of(type(value))


def _inside(value: Any) -> dict[Any, Any]:
    if isinstance(value, Tensor | np.ndarray | type | types.ModuleType):
        return {}
    if isinstance(value, TrainingParameters):
        unread = OF_THE_ENGINE | unshared_names(value)
        return {name: getattr(value, name) for name in value.declared() if name not in unread}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, types.MethodType):
        return {"self": value.__self__, "func": value.__func__}
    if isinstance(value, types.FunctionType):
        cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
        closed = {name: cell.cell_contents for name, cell in cells.items() if _is_filled(cell)}
        return closed | {"defaults": value.__defaults__, "kwdefaults": value.__kwdefaults__}
    slots = [name for kind in type(value).__mro__ for name in _slots_of(kind) if hasattr(value, name)]
    values = dict(getattr(value, "__dict__", {})) | {name: getattr(value, name) for name in slots}
    if isinstance(value, nn.Module):
        values = _own(value) | value._parameters | value._buffers | value._modules
    return values


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _of_numbers(kind: str, content: bytes) -> str:
    return f"{kind} {hashlib.blake2s(content, digest_size=8).hexdigest()}"


def _bytes_of(tensor: Tensor) -> bytes:
    if tensor.is_meta:
        return b""
    return bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def _code_of(function: types.FunctionType) -> bytes:
    code = function.__code__
    numbers = [constant for constant in code.co_consts if isinstance(constant, _PLAIN)]
    return code.co_code + repr((code.co_firstlineno, code.co_names, numbers)).encode()


def _name_of(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else str(value.__name__)
