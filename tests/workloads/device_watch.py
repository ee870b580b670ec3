"""What a piece of a program asks of a GPU: kernels, and whatever makes the host wait for it. For `pretend_device`.

An operation that is no view counts as one kernel; on a GPU, a few launch more than one. A note says where the host
would wait for the GPU, or the GPU for the host's memory. Without notes a step is a queue of kernels, which the host can
fill ahead and a CUDA graph can hold. A number on the CPU is not noted where the kernel just gets its value.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload

from attnsweep.workloads.engine import even_rows

NUMBER_READ = "a number is read"
COPY_TO_HOST = "copy to the host"
COPY_TO_DEVICE = "copy to the device"
"""From pageable memory: the host waits for it."""
SHAPE_FROM_DATA = "a shape depends on values"
UNEVEN_SUM = "a sum reads the numbers of some lanes in another order"
_ATEN = torch.ops.aten
_NUMBER_READS = {_ATEN._local_scalar_dense, _ATEN.equal, _ATEN.is_nonzero}
_SHAPES_FROM_DATA = {
    _ATEN.nonzero,
    _ATEN.masked_select,
    _ATEN._unique,
    _ATEN._unique2,
    _ATEN.unique_dim,
    _ATEN.unique_consecutive,
    _ATEN.bincount,
}
INDEXED = {_ATEN.index, _ATEN.index_put, _ATEN.index_put_, _ATEN._index_put_impl_}
"""Operations whose indices may be on the CPU."""
COPIES = {_ATEN.copy_, _ATEN._to_copy}
_SUMS = {_ATEN.sum, _ATEN.mean, _ATEN.linalg_vector_norm}
_WITHOUT_KERNEL = {
    *(_ATEN.empty, _ATEN.empty_like, _ATEN.empty_strided, _ATEN.new_empty, _ATEN.new_empty_strided),
    *(_ATEN._local_scalar_dense, _ATEN._unsafe_view, _ATEN.detach, _ATEN.lift_fresh, _ATEN.resize_, _ATEN.set_),
}
_TORCH = str(Path(torch.__file__).parent)
_OWN_FILES = {__file__, str(Path(__file__).with_name("pretend_device.py")), even_rows.__file__}


class Note(NamedTuple):
    """Something that makes the host wait, or reads from its memory.

    Attributes:
        kind: One of the constants above.
        operation: What did it.
        place: The file and line that asked for it, `<folder>/<file>:<line>`.
    """

    kind: str
    operation: str
    place: str

    def __str__(self) -> str:
        return f"{self.place}: {self.kind} ({self.operation})"


@dataclass(eq=False)
class Watch:
    """What was seen so far.

    Attributes:
        kernels: How often each operation was launched.
        notes: How often each was made.
    """

    kernels: Counter[str] = field(default_factory=Counter)
    notes: Counter[Note] = field(default_factory=Counter)


_watches: list[Watch] = []


@contextmanager
def watched() -> Iterator[Watch]:
    """Watches the pretended device."""
    watch = Watch()
    _watches.append(watch)
    try:
        yield watch
    finally:
        _watches.remove(watch)


def noted(kind: str, operation: str) -> None:
    """Makes a note in whatever is being watched."""
    if _watches:
        note = Note(kind, operation, _place())
        for watch in _watches:
            watch.notes[note] += 1


def seen(
    function: OpOverload, arguments: Sequence[Any], options: Mapping[str, Any], is_on_device: Callable[[Tensor], bool]
) -> None:
    """Counts an operation that a tensor of the device takes part in, and makes the notes that are due."""
    if not _watches:
        return
    packet, name = function.overloadpacket, str(function)
    if packet in COPIES:
        _note_copy(function, arguments, options, is_on_device)
    elif packet in _NUMBER_READS:
        noted(NUMBER_READ, name)
    elif packet in _SHAPES_FROM_DATA or (packet is _ATEN.repeat_interleave and options.get("output_size") is None):
        noted(SHAPE_FROM_DATA, name)
    elif packet in INDEXED:
        _note_indices(name, arguments[1], is_on_device)
    elif packet in _SUMS and arguments[0].is_floating_point():
        dims = arguments[2 if packet is _ATEN.linalg_vector_norm else 1] if len(arguments) > 1 else None
        _note_sum(name, arguments[0], dims or range(arguments[0].dim()))
    elif packet is _ATEN.where and not all(map(is_on_device, tensors(arguments))):
        noted(COPY_TO_DEVICE, name)
    if packet not in _WITHOUT_KERNEL and not _is_view(function):
        for watch in _watches:
            watch.kernels[name] += 1


def _note_copy(
    function: OpOverload, arguments: Sequence[Any], options: Mapping[str, Any], is_on_device: Callable[[Tensor], bool]
) -> None:
    if function.overloadpacket is _ATEN._to_copy:
        if options.get("device") == torch.device("cpu"):
            noted(COPY_TO_HOST, str(function))
    elif not is_on_device(arguments[0]):
        noted(COPY_TO_HOST, str(function))
    elif not is_on_device(arguments[1]):
        noted(COPY_TO_DEVICE, str(function))


def _note_indices(name: str, indices: Iterable[Tensor | None], is_on_device: Callable[[Tensor], bool]) -> None:
    for index in indices:
        if index is None:
            continue
        if not is_on_device(index):
            noted(COPY_TO_DEVICE, name)
        if index.dtype in (torch.bool, torch.uint8):
            noted(SHAPE_FROM_DATA, name)


def _note_sum(name: str, value: Tensor, dims: Iterable[int]) -> None:
    """Of long rows of adjacent numbers, a GPU adds in another order those that begin at no multiple of four numbers."""
    added = {dim % value.dim() for dim in dims}
    kept = [value.stride(axis) for axis in set(range(value.dim())) - added if value.shape[axis] > 1]
    n_added = math.prod(value.shape[axis] for axis in added)
    if n_added > 128 and any(value.stride(axis) == 1 for axis in added) and any(stride % 4 for stride in kept):
        noted(UNEVEN_SUM, name)


def _is_view(function: OpOverload) -> bool:
    aliases = [each.alias_info for each in function._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Those among the arguments of an operation, which are values and flat lists of values."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors(value)


def _place() -> str:
    """The innermost line that asks for something itself: none of PyTorch's, of this tool, or of `even_rows`."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path not in _OWN_FILES and not path.startswith((_TORCH, "<")):
            return f"{'/'.join(Path(path).parts[-3:])}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "a backward pass"
