"""Makes sums on a GPU round alike for every training, wherever its numbers lie in memory.

PyTorch's kernel for sums of many adjacent numbers reads four at a time, from addresses that are multiples of four
numbers, and adds a row that begins between two such addresses in another order.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._python_dispatch import TorchDispatchMode

_ATEN = torch.ops.aten
_AT_ONCE = 4
"""PyTorch's kernel for sums reads this many adjacent numbers at a time."""
_MOST_ONE_BY_ONE = 128
"""PyTorch's kernel reads the numbers of a sum one by one if there are at most this many."""


def even_rows(device: torch.device) -> AbstractContextManager[object]:
    """Within, sums, means and norms on a GPU read rows that start at a multiple of four numbers."""
    return nullcontext() if device.type == "cpu" else EvenRows()


class EvenRows(TorchDispatchMode):
    """Copies a tensor's rows to addresses that are multiples of four numbers, where some row begins elsewhere."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        rule = _RULES.get(func)
        result = rule(*args, **options) if rule is not None else None
        return func(*args, **options) if result is None else result


def _sum(value: Tensor, dims: Sequence[int] | None, keepdim: bool = False, *, dtype: Any = None) -> Tensor | None:
    value = value if dtype is None else value.to(dtype)
    reduced = _axes(value, dims)
    if not _is_uneven(value, reduced):
        return None
    return _even(value, reduced).sum(-1).view(_kept_shape(value, reduced, keepdim))


def _mean(value: Tensor, dims: Sequence[int] | None, keepdim: bool = False, *, dtype: Any = None) -> Tensor | None:
    result_dtype = dtype or value.dtype
    # The sum is computed in float32 or wider, because in half precision a sum may overflow although the mean does not.
    total = _sum(value, dims, keepdim, dtype=torch.promote_types(result_dtype, torch.float32))
    return None if total is None else (total / (value.numel() // total.numel())).to(result_dtype)


def _norm(
    value: Tensor, order: float = 2, dims: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor | None:
    reduced = _axes(value, dims)
    if dtype is not None or not _is_uneven(value, reduced):
        return None
    # The appended zeros change no norm of positive order; others are left to PyTorch.
    norms = torch.linalg.vector_norm(_even(value, reduced), order, -1) if order > 0 else None
    return None if norms is None else norms.view(_kept_shape(value, reduced, keepdim))


_RULES: dict[Any, Callable[..., Tensor | None]] = {
    _ATEN.sum.dim_IntList: _sum,
    _ATEN.mean.dim: _mean,
    _ATEN.linalg_vector_norm.default: _norm,
}


def _axes(value: Tensor, dims: Sequence[int] | None) -> list[int]:
    return sorted({dim % value.dim() for dim in dims}) if dims else list(range(value.dim()))


def _is_uneven(value: Tensor, reduced: Sequence[int]) -> bool:
    """Whether long rows of adjacent numbers are summed, some of which begin at an uneven address."""
    if not value.is_floating_point() or not value.numel():
        return False
    axes = [(value.shape[axis], value.stride(axis), axis in reduced) for axis in range(value.dim())]
    are_adjacent = any(size > 1 and stride == 1 and is_added for size, stride, is_added in axes)
    is_long = math.prod(size for size, _, is_added in axes if is_added) > _MOST_ONE_BY_ONE
    begin_elsewhere = any(size > 1 and stride % _AT_ONCE and not is_added for size, stride, is_added in axes)
    return are_adjacent and is_long and begin_elsewhere


def _even(value: Tensor, reduced: Sequence[int]) -> Tensor:
    """Puts the numbers of each sum in a row of its own, padded with zeros to a multiple of four."""
    kept = [axis for axis in range(value.dim()) if axis not in reduced]
    rows = value.permute(*kept, *reduced).flatten(len(kept))
    return pad(rows, (0, -rows.shape[-1] % _AT_ONCE)).contiguous()


def _kept_shape(value: Tensor, reduced: Sequence[int], keepdim: bool) -> list[int]:
    sizes = [1 if axis in reduced else size for axis, size in enumerate(value.shape)]
    return sizes if keepdim else [size for axis, size in enumerate(sizes) if axis not in reduced]
