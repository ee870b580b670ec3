"""Rules for views: a tensor's entries at other places. A view of what is in memory is in memory too."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, fx

from attnsweep.workloads.engine.compiling.emitting import (
    ZERO,
    Array,
    Body,
    Index,
    Loops,
    Place,
    Stored,
    Value,
)
from attnsweep.workloads.engine.compiling.operations import c_type_of, form_of, name_of
from attnsweep.workloads.engine.executors import NoRuleError

aten = torch.ops.aten
Rule = Callable[..., Any]


class Here:
    """The operation that a rule computes.

    Args:
        homes: For a value that only one `cat` reads, this `cat`, and where the value lies in it.
        joined: The memory of each `cat`, made when first needed.
    """

    def __init__(
        self, loops: Loops, node: fx.Node, homes: Mapping[fx.Node, tuple[fx.Node, int]], joined: dict[fx.Node, Array]
    ) -> None:
        found = node.meta["val"]
        meta: Tensor = found[0] if isinstance(found, list | tuple) else found
        self.loops, self._node, self._homes, self._joined = loops, node, homes, joined
        self.shape, self.dtype = tuple(meta.shape), meta.dtype

    @property
    def c_type(self) -> str:
        return c_type_of(self.dtype)

    @property
    def source_meta(self) -> Tensor:
        """What the first argument was when the graph was traced."""
        source: Any = self._node.args[0]
        meta: Tensor = source.meta["val"]
        return meta

    def new(self) -> Stored:
        """Memory for the result: a part of the `cat`'s, if it has a home in one."""
        if self._node not in self._homes:
            return self.loops.new(self.shape, self.dtype)
        cat, start = self._homes[self._node]
        whole = Here(self.loops, cat, self._homes, self._joined).joined()
        part = whole.meta.view(-1)[start : start + prod(self.shape)]
        return Stored(whole.array, part.view(self.shape), is_part=True)

    def joined(self) -> Stored:
        meta = torch.empty(self.shape, dtype=self.dtype, device="meta")
        if self._node not in self._joined:
            self._joined[self._node] = self.loops.array(self.c_type, meta.numel())
        return Stored(self._joined[self._node], meta)

    def value(self, entry: Callable[[Body, Index], str]) -> Value:
        return Value(self.shape, self.dtype, entry)

    def pointwise(self, *arguments: Any, **named: Any) -> Value:
        form, to = form_of(name_of(self._node.target)), self.c_type
        assert form is not None
        named = {
            name: each for name, each in named.items() if name in ("alpha", "rounding_mode", "min", "max", "decimals")
        }

        def entry(body: Body, index: Index) -> str:
            def read(each: Any) -> Any:
                return each.entry(body, broadcast(index, each.shape)) if isinstance(each, Value) else each

            return form(to, *map(read, arguments), **{name: read(each) for name, each in named.items()})

        return self.value(entry)

    def viewed(self, value: Value, places: Callable[[Index], Index], view: Callable[[Tensor], Tensor]) -> Value:
        """A view of a value, in memory where that one is. `places` finds an entry of the result in the value."""
        if not isinstance(value, Stored):
            return self.value(lambda body, index: value.at(body, places(index)))
        try:
            return Stored(value.array, view(value.meta))
        except RuntimeError:
            value = self.loops.copied(value)
            return Stored(value.array, view(value.meta))


def broadcast(index: Index, shape: Sequence[int]) -> Index:
    """The place of a result's entry in an operand of this shape."""
    last = index[len(index) - len(shape) :]
    return tuple(ZERO if size == 1 else place for place, size in zip(last, shape, strict=True))


def is_merging(node: fx.Node) -> bool:
    """Whether a reshape joins axes: then what it shows must be in memory."""
    if node.op != "call_function" or VIEWS.get(name_of(node.target)) is not _reshaped:
        return False
    source: Any = node.args[0]
    return _splits(source.meta["val"].shape, node.meta["val"].shape) is None


def _splits(old: Sequence[int], new: Sequence[int]) -> list[range] | None:
    """For each axis of `old` the axes of `new` into which a reshape splits it; `None` if it joins axes."""
    found, place = list[range](), 0
    for size in old:
        start, n = place, 1
        while n < size and place < len(new):
            n, place = n * new[place], place + 1
        if n != size:
            return None
        found.append(range(start, place))
    return found


def _reshaped(here: Here, value: Value, *_: Any) -> Value:
    splits = _splits(value.shape, here.shape)

    def joined(places: Sequence[Place], sizes: Sequence[int]) -> Place:
        parts = [place * prod(sizes[n + 1 :]) for n, place in enumerate(places) if sizes[n] != 1]
        if len(parts) < 2:
            return parts[0] if parts else ZERO
        return Place(f"({' + '.join(part.text for part in parts)})", any(part.varies for part in parts))

    def places(index: Index) -> Index:
        assert splits is not None
        return tuple(joined([index[n] for n in axes], [here.shape[n] for n in axes]) for axes in splits)

    value = value if splits is not None else here.loops.stored(value)
    return here.viewed(value, places, lambda meta: meta.view(here.shape))


def _permuted(here: Here, value: Value, dims: Sequence[int]) -> Value:
    dims = [dim % len(dims) for dim in dims]
    return here.viewed(
        value, lambda index: tuple(index[dims.index(n)] for n in range(len(dims))), lambda meta: meta.permute(dims)
    )


def _expanded(here: Here, value: Value, *_: Any, **__: Any) -> Value:
    return here.viewed(value, lambda index: broadcast(index, value.shape), lambda meta: meta.expand(here.shape))


def axis_of(value: Value, dim: int) -> int:
    return dim % max(len(value.shape), 1)


def with_place(index: Index, axis: int, place: Place) -> Index:
    return (*index[:axis], place, *index[axis + 1 :])


def _selected(here: Here, value: Value, dim: int, at: int) -> Value:
    axis = axis_of(value, dim)
    place = Place(str(at % value.shape[axis]))
    return here.viewed(value, lambda index: (*index[:axis], place, *index[axis:]), lambda meta: meta.select(axis, at))


def _sliced(here: Here, value: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    axis = axis_of(value, dim)
    first = slice(start, end).indices(value.shape[axis])[0]
    return here.viewed(
        value,
        lambda index: with_place(index, axis, index[axis] * step + first),
        lambda meta: aten.slice.Tensor(meta, axis, start, end, step),
    )


def _diagonal(here: Here, value: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    by_axis = {axis_of(value, dim1): max(-offset, 0), axis_of(value, dim2): max(offset, 0)}

    def places(index: Index) -> Index:
        rest = list(index[:-1])
        for axis in sorted(by_axis):
            rest.insert(axis, index[-1] + by_axis[axis])
        return tuple(rest)

    return here.viewed(value, places, lambda meta: meta.diagonal(offset, dim1, dim2))


def _strided(here: Here, value: Value, size: Any, stride: Any, offset: int | None = None) -> Value:
    traced, stored = here.source_meta, here.loops.stored(value)
    if stored.meta.stride() != traced.stride():
        stored = here.loops.copied(value)
    if stored.meta.stride() != traced.stride():
        raise NoRuleError("a view by as_strided of a tensor that is not contiguous cannot be compiled")
    start = stored.meta.storage_offset() + (0 if offset is None else offset - traced.storage_offset())
    return Stored(stored.array, stored.meta.as_strided(size, stride, start))


def flipped(here: Here, value: Value, dims: Sequence[int]) -> Value:
    axes = {axis_of(value, dim) for dim in dims if value.shape}

    def turned(axis: int, place: Place) -> Place:
        last = value.shape[axis] - 1
        return Place(f"({last} - {place.text})", place.varies) if axis in axes and last > 0 else place

    return here.value(lambda body, index: value.at(body, tuple(turned(n, place) for n, place in enumerate(index))))


VIEWS: dict[str, Rule] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze"), _reshaped),
    **dict.fromkeys(("clone", "alias", "detach", "lift_fresh_copy"), lambda _, value, **__: value),
    "permute": _permuted,
    "expand": _expanded,
    "select": _selected,
    "slice": _sliced,
    "diagonal": _diagonal,
    "as_strided": _strided,
}
