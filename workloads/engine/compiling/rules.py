"""Rules for operations that are more than a formula for each entry: lookups, sums, products and parts.

A rule gets the operation's arguments, tensors as `Value`, and returns its result.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, nan, prod
from typing import Any

import torch
from torch import Tensor

from attnsweep.workloads.engine.compiling.emitting import ZERO, Body, Index, Place, Reduction, Stored, Value, extents_of
from attnsweep.workloads.engine.compiling.operations import in_type, literal
from attnsweep.workloads.engine.compiling.views import Here, Rule, axis_of, broadcast, flipped, with_place
from attnsweep.workloads.engine.executors import NoRuleError

aten = torch.ops.aten


def _copied(here: Here, value: Value, *_: Any, **__: Any) -> Value:
    return value if value.dtype == here.dtype else here.pointwise(value)


def _copied_over(here: Here, _: Value, source: Value, *__: Any) -> Value:
    return here.value(lambda body, at: in_type(here.c_type, source.entry(body, broadcast(at, source.shape))))


def _filled(number: Callable[..., Any]) -> Rule:
    return lambda here, *arguments, **_: here.value(lambda *_: literal(number(*arguments), here.c_type))


def _arange(here: Here, *arguments: Any, **_: Any) -> Value:
    start, step = (0, 1) if len(arguments) == 1 else (arguments[0], arguments[2] if len(arguments) > 2 else 1)
    to = here.c_type
    return here.value(lambda _, at: f"number<{to}>({at[0].text}) * {literal(step, to)} + {literal(start, to)}")


def _eye(here: Here, *_: Any, **__: Any) -> Value:
    same = "to<{0}>(truth(number<l>({1.text}) == number<l>({2.text})))"
    return here.value(lambda _, index: same.format(here.c_type, *index))


def _row(index: Value, size: int, body: Body, at: Index, *, wraps: bool = False) -> Place:
    """An index that is data, as a place. If it `wraps`, negative ones count from the end."""
    text = f"row<{int(wraps)}>({in_type('l', index.entry(body, at))}, {size}, m.outside)"
    return Place(body.named(text, "l", at), varies=True)


def _embedded(here: Here, table: Value, index: Value, *_: Any) -> Value:
    return here.value(
        lambda body, at: table.at(body, (_row(index, table.shape[0], body, at[: len(index.shape)]), at[-1]))
    )


def _gathered(here: Here, value: Value, dim: int, index: Value, **_: Any) -> Value:
    axis = axis_of(value, dim)
    if not value.shape:
        return here.value(lambda body, _: value.at(body, ()))
    return here.value(
        lambda body, at: value.at(
            body, with_place(at, axis, _row(index, value.shape[axis], body, broadcast(at, index.shape)))
        )
    )


def _rows_selected(here: Here, value: Value, dim: int, index: Value) -> Value:
    axis = axis_of(value, dim)
    return here.value(
        lambda body, at: value.at(
            body, with_place(at, axis, _row(index, value.shape[axis], body, at[axis : axis + 1] if index.shape else ()))
        )
    )


def _places_of(given: Sequence[Value | None], shape: Sequence[int]) -> Callable[[Body, Index], Index]:
    """From an entry of `x[given]` its place in `x`, of this shape."""
    indices = [*given, *[None] * (len(shape) - len(given))]
    if any(index is not None and index.dtype == torch.bool for index in indices):
        raise NoRuleError("indexing by a mask cannot be compiled")
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    n_shared = len(torch.broadcast_shapes(*(index.shape for index in indices if index is not None)))
    start = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0

    def places(body: Body, at: Index) -> Index:
        shared, rest = at[start : start + n_shared], [*at[:start], *at[start + n_shared :]]
        return tuple(
            rest.pop(0) if index is None else _row(index, size, body, broadcast(shared, index.shape), wraps=True)
            for index, size in zip(indices, shape, strict=True)
        )

    return places


def _indexed(here: Here, value: Value, given: Sequence[Value | None]) -> Value:
    places = _places_of(given, value.shape)
    return here.value(lambda body, at: value.at(body, places(body, at)))


def _lowest(c_type: str, sign: int) -> str:
    if c_type in "fd":
        return literal(sign * inf, c_type)
    if c_type in "bu":
        return literal(0 if sign < 0 else 255, c_type)
    return literal(sign * (2 ** (8 * {"l": 8, "i": 4, "h": 2, "c": 1}[c_type] - 1) - 1), c_type)


_REDUCTIONS: dict[str, Callable[[int], Reduction]] = {
    "sum": lambda _: Reduction("{0} + {1}", partial(literal, 0), sign="+"),
    "mean": lambda n: Reduction(
        "{0} + {1}", partial(literal, 0), "+", lambda name, c_type: f"{name} * {literal(1 / n if n else nan, c_type)}"
    ),
    "prod": lambda _: Reduction("{0} * {1}", partial(literal, 1), sign="*"),
    "amax": lambda _: Reduction("larger({0}, {1})", lambda c_type: _lowest(c_type, -1), sign="larger"),
    "amin": lambda _: Reduction("smaller({0}, {1})", lambda c_type: _lowest(c_type, 1), sign="smaller"),
    "any": lambda _: Reduction("{0} | {1}", partial(literal, 0), sign="|"),
    "all": lambda _: Reduction("{0} & {1}", partial(literal, 1), sign="&"),
}
_REDUCTIONS |= {"max": _REDUCTIONS["amax"], "min": _REDUCTIONS["amin"]}


def _reduced(name: str, here: Here, value: Value, dims: Any = None, keepdim: bool = False, **_: Any) -> Any:
    rank = len(value.shape)
    if name in ("max", "min") and dims is not None:
        return _extreme(here, value, dims, keepdim, is_largest=name == "max")
    dims = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    axes = {dim % rank for dim in dims} if rank else set[int]()
    is_kept = [axis not in axes for axis, size in enumerate(value.shape) if size != 1]
    n_outer, how = sum(is_kept), _REDUCTIONS[name](prod(value.shape[axis] for axis in axes))
    result = here.new()

    def compute(body: Body) -> None:
        at = body.index(value.shape)
        own = [place for axis, place in enumerate(at) if axis not in axes]
        index = (
            tuple(own)
            if len(own) == len(here.shape)
            else tuple(ZERO if axis in axes else place for axis, place in enumerate(at))
        )
        text = in_type(result.c_type, value.entry(body, at))
        if n_outer == len(is_kept):
            text = how.end(how.form.format(how.start(result.c_type), text), result.c_type)
            body.store(result, index, text)
        elif all(is_kept[:n_outer]):
            body.reduce(result, index, text, how)
        else:
            body.add_to(result, index, text, how, is_serial=not is_kept[-1])

    is_by_row = all(is_kept[:n_outer])
    here.loops.compute(extents_of(value.shape), compute, n_outer if is_by_row and n_outer < len(is_kept) else None)
    if is_by_row or how.end("x", result.c_type) == "x":
        return result
    return here.value(lambda body, index: how.end(result.at(body, index), result.c_type))


def _sorted(
    here: Here, value: Value, dim: int = -1, descending: bool = False, nan_first: Any = None, **_: Any
) -> tuple[Stored, Stored]:
    """The entries along an axis in order, and where they were."""
    axis, given = axis_of(value, dim), here.loops.stored(value)
    found = here.loops.new(value.shape, value.dtype), here.loops.new(value.shape, torch.int64)
    if not value.shape:
        raise NoRuleError("a single number cannot be sorted")
    places = [ZERO if n == axis or size == 1 else Place(f"i{n}") for n, size in enumerate(value.shape)]
    loops = [
        f"for (int64_t i{n} = 0; i{n} < {size}; i{n}++) "
        for n, size in enumerate(value.shape)
        if n != axis and size != 1
    ]
    pointers = [f"&{each.array.name}[{each.offset(tuple(places)).text}]" for each in (given, *found)]
    steps = [each.meta.stride()[axis] for each in (given, found[0])]
    nan_first = descending if nan_first is None else nan_first
    order = f"{value.shape[axis]}, {int(descending)}, {int(nan_first)}"
    call = f"sort_numbers({pointers[0]}, {steps[0]}, {order}, {pointers[1]}, {pointers[2]}, {steps[1]});"
    here.loops.call("".join(loops) + call, (given.array, *(each.array for each in found)))
    return found


def _topk(
    here: Here, value: Value, k: int, dim: int = -1, largest: bool = True, _: Any = True, nan_first: Any = None
) -> tuple[Stored, ...]:
    axis = axis_of(value, dim)
    found = _sorted(here, value, dim, largest, nan_first)
    return tuple(Stored(each.array, each.meta.narrow(axis, 0, k)) for each in found)


def _extreme(here: Here, value: Value, dim: int, keepdim: bool, *, is_largest: bool) -> tuple[Stored, ...]:
    axis = axis_of(value, dim)
    found = _topk(here, value, 1, dim, is_largest, True, True)
    return found if keepdim else tuple(Stored(each.array, each.meta.squeeze(axis)) for each in found)


def _place_of_extreme(
    is_largest: bool, here: Here, value: Value, dim: int | None = None, keepdim: bool = False
) -> Value:
    if dim is None:
        raise NoRuleError("the place of the largest of all entries cannot be compiled: name an axis")
    return _extreme(here, value, dim, keepdim, is_largest=is_largest)[1]


def _product(here: Here, a: Value, b: Value) -> Value:
    a, b, result = here.loops.stored(a), here.loops.stored(b), here.new()
    (m, k), n = a.shape[-2:], b.shape[-1]
    sizes = (m, n, k, *a.meta.stride()[-2:], *b.meta.stride()[-2:])

    def pointer(value: Stored, of_batch: int) -> str:
        return f"&{value.array.name}[{value.meta.storage_offset()} + x * {of_batch}]"

    is_batch = len(here.shape) == 3
    batches = [value.meta.stride()[0] if is_batch else 0 for value in (a, b, result)]
    pointers = ", ".join(pointer(value, stride) for value, stride in zip((a, b, result), batches, strict=True))
    call = f"product<{', '.join(map(str, sizes))}>({pointers});"
    here.loops.call(
        f"for (int64_t x = 0; x < {here.shape[0] if is_batch else 1}; x++) {call}", (a.array, b.array, result.array)
    )
    return result


def _scattered(
    here: Here, target: Value, source: Any, shape: Sequence[int], places: Callable[[Body, Index], Index], *, adds: bool
) -> Value:
    """A copy of `target`, changed at places that are data, entry after entry of `source`."""
    result = here.new()
    here.loops.write(result, target)

    def compute(body: Body) -> None:
        at = body.index(shape)
        number = source.entry(body, at) if isinstance(source, Value) else source
        text = in_type(result.c_type, number)
        body.change(result.array, result.offset(places(body, at)), f"{{0}} + {text}" if adds else text, is_serial=True)

    here.loops.compute(extents_of(shape), compute, in_new_nest=True)
    return result


def _embedding_backward(
    here: Here, gradient: Value, index: Value, n_rows: int, padding: int, by_frequency: bool
) -> Value:
    if by_frequency or padding >= 0:
        raise NoRuleError("an embedding with scale_grad_by_freq or an unmasked padding row cannot be compiled")
    zeros = here.value(lambda *_: literal(0, here.c_type))
    return _scattered(
        here,
        zeros,
        gradient,
        gradient.shape,
        lambda body, at: (_row(index, n_rows, body, at[: len(index.shape)]), at[-1]),
        adds=True,
    )


def _scatter(here: Here, target: Value, dim: int, index: Value, source: Any, *, adds: bool = False) -> Value:
    axis = axis_of(target, dim)
    return _scattered(
        here,
        target,
        source,
        index.shape,
        lambda body, at: with_place(at, axis, _row(index, target.shape[axis], body, at)) if target.shape else (),
        adds=adds,
    )


def _put(here: Here, target: Value, given: Sequence[Value | None], value: Value, accumulate: bool = False) -> Value:
    like = [slice(None) if index is None else torch.zeros(index.shape, dtype=torch.int64) for index in given]
    shape = torch.zeros(()).expand(target.shape)[tuple(like)].shape
    spread = Value(shape, value.dtype, lambda body, at: value.at(body, broadcast(at, value.shape)))
    return _scattered(here, target, spread, shape, _places_of(given, target.shape), adds=accumulate)


Part = tuple[Value, Callable[[Tensor], Tensor]]
"""A value, and the view of the whole that it fills."""


def _parted(here: Here, result: Stored, base: Value | None, parts: Sequence[Part]) -> Value:
    """A tensor of which parts are given, and the rest is `base`."""
    if base is not None:
        here.loops.write(result, base)
    for value, part in parts:
        if prod(value.shape):
            here.loops.write(Stored(result.array, part(result.meta), is_part=base is None), value)
    return result


def _cat(here: Here, values: Sequence[Value], dim: int = 0) -> Value:
    axis, result, parts, start = dim % max(len(here.shape), 1), here.joined(), list[Part](), 0
    for value in values:
        size = value.shape[axis] if len(value.shape) == len(here.shape) else 0
        if size and not (isinstance(value, Stored) and value.array is result.array):
            parts.append((value, partial(torch.narrow, dim=axis, start=start, length=size)))
        start += size
    return _parted(here, result, None, parts)


def _padded(here: Here, value: Value, pad: Sequence[int], number: float = 0.0) -> Value:
    ends = {len(value.shape) - 1 - n: (pad[2 * n], pad[2 * n + 1]) for n in range(len(pad) // 2)}
    cut, shape = dict[int, int](), list(value.shape)
    for axis, (before, after) in ends.items():
        cut[axis] = max(-before, 0)
        shape[axis] += min(before, 0) + min(after, 0)

    def entry(body: Body, at: Index) -> str:
        return value.at(body, tuple(place + cut.get(axis, 0) for axis, place in enumerate(at)))

    def inside(meta: Tensor) -> Tensor:
        for axis, (before, _) in ends.items():
            meta = meta.narrow(axis, max(before, 0), shape[axis])
        return meta

    rest = here.value(lambda *_: literal(number, here.c_type))
    return _parted(here, here.new(), rest, [(Value(shape, value.dtype, entry), inside)])


def _part_set(view: Callable[..., Tensor]) -> Rule:
    """`slice_scatter` and the like: a copy with new values in a view of it."""
    return lambda here, base, source, *others, **named: _parted(
        here, here.new(), base, [(source, lambda meta: view(meta, *others, **named))]
    )


def _cumulated(sign: str, start: int, here: Here, value: Value, dim: int, **_: Any) -> Value:
    axis, result = axis_of(value, dim), here.new()

    def compute(body: Body) -> None:
        at = body.index(value.shape)
        offset, text = result.offset(at), in_type(result.c_type, value.entry(body, at))
        if value.shape and value.shape[axis] > 1:
            before = f"{result.array.name}[{offset.text} - {result.meta.stride()[axis]}]"
            text = f"{text} {sign} ({at[axis].text} ? {before} : {literal(start, result.c_type)})"
        body.change(result.array, offset, text, is_serial=True)

    here.loops.compute(extents_of(value.shape), compute, in_new_nest=True)
    return result


# Computed where the result is read.
ENTRIES: dict[str, Rule] = {
    **dict.fromkeys(("_to_copy", "convert_element_type"), _copied),
    "copy": _copied_over,
    **dict.fromkeys(
        ("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "empty_permuted", "new_empty_strided"),
        _filled(lambda *_: 0),
    ),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _filled(lambda *_: 1)),
    **dict.fromkeys(("full", "full_like"), _filled(lambda _, number: number)),
    "new_full": _filled(lambda _, __, number: number),
    "scalar_tensor": _filled(lambda number: number),
    "arange": _arange,
    "eye": _eye,
    "flip": flipped,
    "embedding": _embedded,
    "gather": _gathered,
    "index": _indexed,
    "index_select": _rows_selected,
}
# Computed into memory.
NESTS: dict[str, Rule] = {
    **{name: partial(_reduced, name) for name in _REDUCTIONS},
    "mm": _product,
    "bmm": _product,
    "embedding_dense_backward": _embedding_backward,
    "scatter": _scatter,
    "scatter_add": partial(_scatter, adds=True),
    "index_put": _put,
    "cat": _cat,
    "constant_pad_nd": _padded,
    "slice_scatter": _part_set(aten.slice.Tensor),
    "select_scatter": _part_set(torch.select),
    "diagonal_scatter": _part_set(torch.diagonal),
    "sort": _sorted,
    "topk": _topk,
    "argmax": partial(_place_of_extreme, True),
    "argmin": partial(_place_of_extreme, False),
    "cumsum": partial(_cumulated, "+", 0),
    "cumprod": partial(_cumulated, "*", 1),
}
IN_MEMORY = {"mm", "bmm", "as_strided", "embedding", "gather", "index", "index_select", "flip"}
"""Operations that read their arguments from memory: again and again, or in another order."""
