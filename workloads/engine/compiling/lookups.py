"""Rules that compute, for a block of trainings at once, reads and writes of a tensor at given indices.

Lanes (trainings) may have different indices, so direct reads and writes would be one load or store per lane. Instead a
read is a product with one-hot vectors, and a write compares all positions with the index: vector instructions over
lanes.

Axes: W lane of a block, always last; V row or entry that can be chosen; K indices along the same axis.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from attnsweep.workloads.engine.compiling.traces import LOOKUPS, NoRuleError, operations_of

aten = torch.ops.aten
Rule: TypeAlias = Callable[..., Any]
"""The signature of a rule: from an operation's node in the graph of one training, and its arguments for a block of
trainings, it computes the result for the block."""

_LONGEST_TABLE = 64
"""The most rows of an embedding that is read by a product with one-hot vectors: for longer ones the product costs more
than it saves. Also the most indices per position of a `scatter_add`."""


def check_lookup(node: Any) -> None:
    """Checks that an operation that reads or writes at given indices can be computed for a block of trainings. Does
    nothing for other operations.

    Raises:
        NoRuleError: If the operation cannot be computed for a block, or would be slow.
    """
    if node.target is aten.index.Tensor and not all(_is_place(index) for index in node.args[1]):
        raise NoRuleError(
            "indexing such as x[i, j] can be compiled only if the first axes are indexed, each by a tensor of integers"
        )
    if node.target in LOOKUPS:
        n_rows = node.args[2] if node.target is aten.embedding_dense_backward.default else shape_of(node.args[0])[0]
        if n_rows > _LONGEST_TABLE:
            raise NoRuleError(
                f"an embedding table of {n_rows} rows is slow if it is compiled for several trainings at once"
            )
        if node.target is aten.embedding_dense_backward.default and node.args[4]:
            raise NoRuleError(
                "an embedding with scale_grad_by_freq=True cannot be compiled for several trainings at once"
            )
    if node.target is aten.gather.default and not shape_of(node.args[0]):
        raise NoRuleError("reading an entry of a tensor without axes cannot be compiled")
    if node.target in _SCATTERS:
        target, index, axis = shape_of(node.args[0]), shape_of(node.args[2]), axis_of(node, node.args[1])
        most = _LONGEST_TABLE if node.target is aten.scatter_add.default else 1
        if not target or _without(target, axis) != _without(index, axis) or index[axis] > most:
            raise NoRuleError(
                f"the operation {node.target} can be compiled for several trainings at once only if its indices"
                f" and its target, of the shapes {index} and {target}, agree in all axes but axis {axis}, where at most"
                f" {most} indices are allowed"
            )


def check_no_places(graph: fx.GraphModule) -> None:
    """Refuses graphs with gather or scatter operations. They would be slow in a compiled program whose first axis is
    the training, because it would compute them one number at a time.

    Raises:
        NoRuleError: For the first such operation.
    """
    for node in operations_of(graph):
        if node.target in (aten.gather.default, *_SCATTERS):
            raise NoRuleError(
                f"the operation {node.target} can be compiled in a whole training step, but not in a gradient alone"
            )


def shape_of(node: Any) -> tuple[int, ...]:
    """Returns the shape that the value of a graph's node has for a single training."""
    return tuple(node.meta["val"].shape)


def axis_of(node: fx.Node, dim: int) -> int:
    """Converts an axis of a tensor to its number counted from the front. A program for many trainings appends an axis
    for the trainings to each tensor, which would shift numbers counted from the end."""
    rank = len(shape_of(node.args[0]))
    return dim % rank if rank else 0


def equal_lanes(*values: Tensor) -> list[Tensor]:
    """Expands the last axis of tensors, along which the trainings lie, to the largest size that it has in any of
    them."""
    lanes = max(value.shape[-1] for value in values)
    return [value.expand(*value.shape[:-1], lanes) for value in values]


def _embedding(node: fx.Node, table: Tensor, index: Tensor, *_: Any) -> Tensor:
    one_hot = _one_hot(index, shape_of(node.args[0])[0], table.dtype)
    # The product of `one_hot` (..., vocabulary, 1, trainings) and `table` (vocabulary, width, trainings) is summed over
    # the vocabulary.
    return (one_hot.unsqueeze(-2) * table).sum(-3)


def _embedding_backward(
    _: fx.Node, gradient: Tensor, index: Tensor, n_rows: int, padding_index: int, *_by_frequency: bool
) -> Tensor:
    one_hot = _one_hot(index, n_rows, gradient.dtype).flatten(0, -3)
    gradient_of_table = (one_hot.unsqueeze(2) * gradient.flatten(0, -3).unsqueeze(1)).sum(0)
    if 0 <= padding_index < n_rows:
        gradient_of_table = gradient_of_table * (
            torch.arange(n_rows, device=gradient_of_table.device).view(-1, 1, 1) != padding_index
        )
    return gradient_of_table


def _is_place(index: Any) -> bool:
    return isinstance(index, fx.Node) and index.meta["val"].dtype in (torch.int64, torch.int32)


def _index(node: fx.Node, table: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """Reads entries of `table` at the given indices of its first axes."""
    sizes = shape_of(node.args[0])
    place = torch.zeros((), dtype=torch.int64, device=table.device)
    for size, index in zip(sizes, indices, strict=False):
        place = place * size + torch.where(index < 0, index + size, index)
    other_sizes = sizes[len(indices) :]
    flat_table, flat_place = equal_lanes(table.flatten(0, len(indices) - 1), place.flatten(0, -2))
    lanes = flat_place.shape[-1]
    index_along_first = flat_place.view(-1, *[1] * len(other_sizes), lanes).expand(-1, *other_sizes, lanes)
    return flat_table.gather(0, index_along_first).view(*shape_of(node), lanes)


def _one_hot(index: Tensor, n_rows: int, dtype: torch.dtype) -> Tensor:
    """Turns indices (..., n_trainings) into one-hot vectors (..., n_rows, n_trainings)."""
    return (index.unsqueeze(-2) == torch.arange(n_rows, device=index.device).view(-1, 1)).to(dtype)


def _gather(node: fx.Node, value: Tensor, dim: int, index: Tensor, **_: Any) -> Tensor:
    value, index = equal_lanes(value, index)
    return value.gather(axis_of(node, dim), index)


def _scatter(node: fx.Node, value: Tensor, dim: int, index: Tensor, source: Any) -> Tensor:
    axis = axis_of(node, dim)
    return torch.where(index == _places(node, axis, index), _read_by(index, source), value).to(value.dtype)


def _scatter_add(node: fx.Node, value: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    axis = axis_of(node, dim)
    # In `is_place`, two axes stand in place of `axis`: one for the positions in the result, and one for the entries of
    # `index`. It is true where an entry of `index` names a position. The values of all entries that name the same
    # position are summed.
    is_place = index.unsqueeze(axis) == _places(node, axis, index).unsqueeze(axis + 1)
    return value + torch.where(is_place, _read_by(index, source).unsqueeze(axis), 0).sum(axis + 1)


def _read_by(index: Tensor, source: Any) -> Any:
    return source[tuple(slice(size) for size in index.shape[:-1])] if isinstance(source, Tensor) else source


def _places(node: fx.Node, axis: int, index: Tensor) -> Tensor:
    target = shape_of(node.args[0])
    return torch.arange(target[axis], device=index.device).view(-1, *[1] * (len(target) - axis))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


_SCATTERS = (aten.scatter.value, aten.scatter.src, aten.scatter_add.default)
LOOKUP_RULES: dict[Any, Rule] = {
    aten.index.Tensor: _index,
    aten.embedding.default: _embedding,
    aten.embedding_dense_backward.default: _embedding_backward,
    aten.gather.default: _gather,
    aten.scatter.value: _scatter,
    aten.scatter.src: _scatter,
    aten.scatter_add.default: _scatter_add,
}
"""For each operation of this module, the rule that computes it for a block of trainings."""


def slices_of(node: fx.Node) -> tuple[slice | int, ...] | None:
    """Converts the view that an `aten.as_strided` makes to slices and integers for indexing; `None` if no slices
    give this view."""
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
        shown = _offsets(source.shape, source.stride(), start_of_source)[tuple(slices)]
    except IndexError:
        return None
    return tuple(slices) if np.array_equal(shown, _offsets(size, stride, offset)) else None


def _offsets(size: Sequence[int], stride: Sequence[int], offset: int) -> NDArray[np.int64]:
    """Returns the memory offset of every entry of a strided tensor, as an array in the tensor's shape."""
    offsets = np.array(offset)
    for length, step in zip(size, stride, strict=True):
        offsets = offsets[..., None] + step * np.arange(length)
    return offsets
