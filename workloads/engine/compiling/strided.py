"""Expresses strided views as slices. Traces contain strided views where a module uses `chunk` or `split`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import fx


def slices_of(node: fx.Node) -> tuple[slice | int, ...] | None:
    """Expresses an `aten.as_strided` of an input by slices; returns `None` if that is not possible.

    Args:
        node: The operation, in the graph of one training.
    """
    source: Any = node.args[0]
    view: Any = node.args[1:]
    source, size, stride = source.meta["val"], view[0], view[1]
    start_of_source = source.storage_offset()
    offset = view[2] if len(view) > 2 and view[2] is not None else start_of_source
    left, wanted = offset - start_of_source, list(zip(size, stride, strict=True))
    slices: list[slice | int] = []
    for step in source.stride():
        start, left = divmod(left, step) if step else (0, left)
        if wanted and wanted[0][1] == step:
            slices.append(slice(start, start + wanted.pop(0)[0]))
        else:
            slices.append(start)
    try:
        shown = _places(source.shape, source.stride(), start_of_source)[tuple(slices)]
    except IndexError:
        return None
    return tuple(slices) if np.array_equal(shown, _places(size, stride, offset)) else None


def _places(size: Sequence[int], stride: Sequence[int], offset: int) -> NDArray[np.int64]:
    """Returns the memory offsets of all entries of a strided tensor, in the tensor's shape."""
    offsets = np.array(offset)
    for length, step in zip(size, stride, strict=True):
        offsets = offsets[..., None] + step * np.arange(length)
    return offsets
