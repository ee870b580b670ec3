"""A pretended accelerator: tensors that claim to be on the device `pretend`, and compute on the CPU.

What a GPU refuses raises here too, with the same words: operations on tensors of two devices. Numbers are the CPU's but
for their last digits: PyTorch composes some operations in another way where a tensor is not on the CPU.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_NAME = "pretend"
_CPU = torch.device("cpu")
_ATEN = torch.library.Library("aten", "IMPL")
_COPIES = {torch.ops.aten.copy_, torch.ops.aten._to_copy}
_INDEXED = {torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_, torch.ops.aten._index_put_impl_}
"""Operations whose indices may be on the CPU."""


class _Pretended(Tensor):
    """A tensor that claims to be on the pretended device.

    Attributes:
        real_values: Its values, on the CPU.
    """

    real_values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "_Pretended":
        made: _Pretended = Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=torch.device(_NAME, 0),
        )
        made.real_values = values
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"pretended {self.real_values!r}"

    def tolist(self) -> Any:
        return self.real_values.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError(f"can't convert {self.device} device type tensor to numpy")
        return self.real_values.numpy(force=True)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: OpOverload, types: Any, arguments: tuple[Any, ...] = (), options: dict[str, Any] | None = None
    ) -> Any:
        options = options or {}
        _refuse_mixed_devices(function, arguments, options)
        own = {name: _CPU if name == "device" else _real(value) for name, value in options.items()}
        found = function(*_real(arguments), **own)
        if options.get("device") == _CPU:
            return found
        found = _pretended(found)
        if any(each.alias_info is not None for each in function._schema.returns):
            return return_and_correct_aliasing(function, arguments, options, found)
        return found


@functools.cache
def pretend_device() -> str:
    """The device's name, for `torch.device`; from the first call on it is there for the rest of the process."""
    _setup_privateuseone_for_python_backend(_NAME)
    aten = torch.ops.aten
    kernels = {
        "empty.memory_format": functools.partial(_made, aten.empty),
        "empty_strided": functools.partial(_made, aten.empty_strided),
        # `torch.tensor` copies the numbers without checking the type.
        "_copy_from": _copied,
    }
    for name, kernel in kernels.items():
        _ATEN.impl(name, kernel, "PrivateUse1")
    return _NAME


def _made(function: Any, *arguments: Any, **options: Any) -> _Pretended:
    return _Pretended(function(*arguments, **options | {"device": _CPU}))


def _copied(source: Tensor, target: _Pretended, *_: Any) -> Tensor:
    return target.real_values.copy_(_real(source))


def _real(value: Any) -> Any:
    # Not by pytree, which is slow: an operation's arguments are tensors and flat lists of tensors.
    if isinstance(value, _Pretended):
        return value.real_values
    return type(value)(map(_real, value)) if isinstance(value, list | tuple) else value


def _pretended(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _Pretended(value)
    return type(value)(map(_pretended, value)) if isinstance(value, list | tuple) else value


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _refuse_mixed_devices(function: OpOverload, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
    packet = function.overloadpacket
    if packet in _COPIES:
        return
    operands = [arguments[0], *arguments[2:]] if packet in _INDEXED else arguments
    elsewhere = [each for each in _tensors([*operands, *options.values()]) if not isinstance(each, _Pretended)]
    # As on a GPU, where pointwise functions accept zero-dimensional CPU tensors.
    if torch.Tag.pointwise in function.tags or packet in _INDEXED:
        elsewhere = [each for each in elsewhere if each.dim()]
    if elsewhere:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {_NAME}:0 and cpu! "
            f"(when calling {function})"
        )
