"""Turns the graph of one training into the graph of a block of trainings (lanes). In the block's tensors the last axis
is the training.

A scalar operation of a training becomes one vector operation over lanes. Lanes do not mix, and all go through the same
operations in the same order, so the bits of a lane depend neither on its place in the block nor on its neighbours.

Axes: W lane of a block, always last; its size is 1 where one value holds for all lanes.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from attnsweep.workloads.engine.compiling.lookups import (
    LOOKUP_RULES,
    Rule,
    axis_of,
    check_lookup,
    equal_lanes,
    shape_of,
    slices_of,
)
from attnsweep.workloads.engine.compiling.traces import (
    NoRuleError,
    broadcast_in_dim,
    constant,
    constants_of,
    operations_of,
    origin,
    read_repeatedly,
    stored,
)

aten, prims = torch.ops.aten, torch.ops.prims
_FEWEST_OF_A_GEMM = 48
"""If all three dimensions of a matrix product are at least this, one GEMM (library call) per training is faster than a
vectorized loop over trainings."""
_MOST_WRITTEN_OUT = 64
"""The most numbers of a constant tensor in a compiled program, because every number becomes an operation."""
_FEWEST_OF_A_LOOP = 8
"""Sums with fewer terms than this are unrolled by the compiler: they need no loop."""


def check_known(graph: fx.GraphModule) -> None:
    """Checks, without compiling, whether a graph can be compiled: each operation must have a rule by which it is
    computed for many trainings at once, and no constant tensor may be large.

    Raises:
        NoRuleError: For the first operation without a rule, or a constant with too many numbers.
    """
    for node in operations_of(graph):
        if _rule_of(node.target) is None:
            raise NoRuleError(f"the operation {node.target} cannot be compiled for several trainings at once")
    for value in constants_of(graph).values():
        if not 0 < value.numel() <= _MOST_WRITTEN_OUT:
            raise NoRuleError(
                f"a constant tensor of {value.numel()} numbers cannot be compiled; make the tensor a buffer of the"
                " module"
            )


def check_rules(graph: fx.GraphModule) -> None:
    """Checks that every operation of a graph has a rule by which it is computed for a block of trainings at once.

    Raises:
        NoRuleError: If an operation cannot be computed for a block, or would be slow.
    """
    check_known(graph)
    node: Any
    for node in operations_of(graph):
        if node.target in (aten.mm.default, aten.bmm.default):
            sizes = (*shape_of(node.args[0])[-2:], shape_of(node.args[1])[-1])
            if min(sizes) >= _FEWEST_OF_A_GEMM:
                product = "x".join(map(str, sizes))
                raise NoRuleError(
                    f"the workload's matrix products, such as {product}, are faster in the engine `vmapped`"
                )
        if node.target is aten.as_strided.default and slices_of(node) is None:
            raise NoRuleError(
                f"the operation {node.target} cannot be compiled for several trainings at once, because here it takes"
                " no plain slice of its tensor"
            )
        check_lookup(node)


class OverLanes(fx.Interpreter):
    """Runs the traced graph of one training on several trainings at once. Each tensor gets one more axis for this: its
    last axis is the training."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self._stored = read_repeatedly(graph)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return constant(value).unsqueeze(-1) if isinstance(value, Tensor) else value

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        rule = _rule_of(n.target)
        assert rule is not None, n.target
        result = rule(n, *args, **kwargs)
        return stored(result) if n in self._stored else result


def _rule_of(target: Any) -> Rule | None:
    if target in _RULES:
        return _RULES[target]
    if isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags:
        return _pointwise
    return None


def _axes(node: fx.Node, dims: Any) -> list[int]:
    rank = len(shape_of(node.args[0]))
    if dims is None or dims == []:
        return list(range(rank))
    return [dim % rank for dim in ([dims] if isinstance(dims, int) else dims)]


def _pointwise(node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    # If PyTorch combines a scalar (0-d tensor) with a larger tensor, the result keeps the larger tensor's dtype. But
    # here several trainings run at once, and their scalars form a 1-d tensor, which could change the dtype. So the
    # scalars are first converted to the dtype that the result has for one training.
    value_of_one = node.meta["val"]
    dtype = value_of_one.dtype if isinstance(value_of_one, Tensor) else None
    if dtype is not None and dtype.is_floating_point and len(value_of_one.shape) > 0:
        args = tuple(_of_type(value, argument, dtype) for value, argument in zip(args, node.args, strict=True))
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _of_type(value: Any, argument: Any, dtype: torch.dtype) -> Any:
    is_scalar = isinstance(value, Tensor) and isinstance(argument, fx.Node) and not shape_of(argument)
    return value.to(dtype) if is_scalar and value.is_floating_point() and value.dtype != dtype else value


def _elementwise(function: Callable[..., Tensor], _: fx.Node, *values: Any) -> Tensor:
    return function(*values)


def _same(node: fx.Node, *args: Any, **kwargs: Any) -> Any:
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _div(node: fx.Node, value: Any, divisor: Any, **kwargs: Any) -> Any:
    argument, dtype = node.args[1], node.meta["val"].dtype
    is_one_number = (
        isinstance(argument, fx.Node) and origin(argument).op == "placeholder" and argument.meta["val"].numel() == 1
    )
    if kwargs or not is_one_number or node.meta["val"].numel() == 1:
        return _pointwise(node, value, divisor, **kwargs)
    # Multiplying by the reciprocal takes one division per training. Dividing would take one division per number.
    return value * _of_type(stored(divisor.reciprocal()), argument, dtype)


def _mm(_: fx.Node, a: Tensor, b: Tensor) -> Tensor:
    # Both factors of the matrix product are split into parts. The compiler computes the products of all parts in one
    # loop, and so loads each number only once for several products.
    n_terms = a.shape[1]
    by_rows, by_columns = a.chunk(_n_parts(a.shape[0], n_terms, (2, 1)), 0), b.chunk(_n_parts(b.shape[1], n_terms), 1)
    return torch.cat(
        [
            torch.cat([(rows.unsqueeze(2) * columns.unsqueeze(0)).sum(1) for columns in by_columns], 1)
            for rows in by_rows
        ]
    )


def _n_parts(size: int, n_terms: int, choices: Sequence[int] = (4, 2, 1)) -> int:
    return next(n for n in choices if size % n == 0) if n_terms >= _FEWEST_OF_A_LOOP else 1


def _reduction(node: fx.Node, value: Tensor, dims: Any = None, *args: Any, **kwargs: Any) -> Any:
    axes = _axes(node, dims)
    if not axes:
        return value.to(kwargs.get("dtype") or value.dtype)
    return node.target(value, axes, *args, **kwargs)  # type: ignore[operator]


def _full_reduction(reduce: Any) -> Rule:
    def rule(node: fx.Node, value: Tensor, **kwargs: Any) -> Any:
        axes = _axes(node, None)
        return reduce(value, axes, **kwargs) if axes else value

    return rule


def _along(node: fx.Node, value: Tensor, dim: int = 0, *args: Any, **kwargs: Any) -> Any:
    return node.target(value, axis_of(node, dim), *args, **kwargs)  # type: ignore[operator]


def _view(node: fx.Node, value: Tensor, *_: Any) -> Tensor:
    return value.reshape([*shape_of(node), value.shape[-1]])


def _permute(_: fx.Node, value: Tensor, dims: Sequence[int]) -> Tensor:
    rank = len(dims)
    return value.permute([*(dim % rank for dim in dims), rank])


def _scatter(node: fx.Node, value: Tensor, source: Tensor, dim: int = 0, *args: Any, **kwargs: Any) -> Any:
    value, source = equal_lanes(value, source)
    return node.target(value.clone(), source, axis_of(node, dim), *args, **kwargs)  # type: ignore[operator]


def _diagonal(node: fx.Node, value: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    # `torch.diagonal` puts the diagonal last, but the last axis must be that of the trainings. So the diagonal is moved
    # in front of it.
    return torch.diagonal(value, offset, axis_of(node, dim1), axis_of(node, dim2)).movedim(-1, -2)


def _diagonal_scatter(
    node: fx.Node, value: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    value, source = equal_lanes(value, source)
    return torch.diagonal_scatter(
        value.clone(), source.movedim(-1, -2), offset, axis_of(node, dim1), axis_of(node, dim2)
    )


def _created(node: fx.Node, *args: Any, **kwargs: Any) -> Tensor:
    """Creates a constant tensor that all trainings share."""
    value: Tensor = node.target(*args, **{name: kwargs[name] for name in kwargs if name != "layout"})  # type: ignore[operator]
    return value.unsqueeze(-1)


def _new(node: fx.Node, value: Tensor, size: Sequence[int], *args: Any, **kwargs: Any) -> Any:
    return node.target(value, [*size, 1], *args, **kwargs)  # type: ignore[operator]


def _all(rule: Rule, *targets: Any) -> dict[Any, Rule]:
    return dict.fromkeys(targets, rule)


_PRIMS = (
    *(torch.add, torch.sub, torch.mul, torch.div, torch.neg, torch.abs, torch.exp, torch.log),
    *(torch.sqrt, torch.rsqrt, torch.reciprocal, torch.erf, torch.tanh),
)
"""PyTorch's usual operations, to replace those of the same names in `prims`, which do not broadcast axes of size 1."""
_RULES: dict[Any, Rule] = {
    operator.getitem: lambda _, values, index: values[index],
    aten.div.Tensor: _div,
    aten.mm.default: _mm,
    aten.bmm.default: lambda _, a, b: (a.unsqueeze(3) * b.unsqueeze(1)).sum(2),
    aten.sum.default: _full_reduction(aten.sum.dim_IntList),
    aten.mean.default: _full_reduction(aten.mean.dim),
    aten.any.default: _full_reduction(aten.any.dims),
    aten.max.default: _full_reduction(aten.amax.default),
    aten.min.default: _full_reduction(aten.amin.default),
    **_all(_reduction, prims.sum.default, aten.sum.dim_IntList, aten.mean.dim),
    **_all(_reduction, aten.amax.default, aten.amin.default, aten.var.correction),
    **_all(_reduction, aten.any.dims, aten.all.dims),
    aten.linalg_vector_norm.default: lambda node, value, order=2, dims=None, *args, **kwargs: (
        aten.linalg_vector_norm.default(value, order, _axes(node, dims), *args, **kwargs)
    ),
    prims.var.default: lambda node, value, dims, correction=1.0: value.var(_axes(node, dims), correction=correction),
    **_all(_along, aten.select.int, aten.slice.Tensor, aten.cumsum.default, aten.max.dim, aten.min.dim),
    **_all(_along, aten.any.dim, aten.all.dim, aten.prod.dim_int),
    aten.flip.default: lambda node, value, dims: value.flip(_axes(node, dims)),
    **_all(_view, aten.view.default, aten.reshape.default, aten._unsafe_view.default),
    **_all(_view, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims),
    aten.expand.default: lambda node, value, *_, **__: value.expand([*shape_of(node), value.shape[-1]]),
    prims.broadcast_in_dim.default: lambda _, value, shape, dims: broadcast_in_dim(
        value, [*shape, value.shape[-1]], [*dims, len(shape)]
    ),
    aten.permute.default: _permute,
    aten.unsqueeze.default: lambda node, value, dim: value.unsqueeze(dim % len(shape_of(node))),
    aten.diagonal.default: _diagonal,
    aten.cat.default: lambda node, values, dim=0: torch.cat(equal_lanes(*values), dim % len(shape_of(node))),
    aten.constant_pad_nd.default: lambda _, value, pad, *args: aten.constant_pad_nd.default(value, [0, 0, *pad], *args),
    aten.repeat.default: lambda _, value, repeats: value.repeat(*repeats, 1),
    aten.empty_permuted.default: lambda _, size, __, dtype=None, device=None, **___: torch.empty(
        [*size, 1], dtype=dtype, device=device
    ),
    **_all(_scatter, aten.select_scatter.default, aten.slice_scatter.default),
    aten.diagonal_scatter.default: _diagonal_scatter,
    **_all(_created, aten.full.default, aten.zeros.default, aten.ones.default, aten.empty.memory_format),
    **_all(_created, aten.scalar_tensor.default, aten.eye.default),
    **_all(_created, aten.arange.default, aten.arange.start, aten.arange.start_step),
    **_all(_new, aten.new_zeros.default, aten.new_ones.default, aten.new_full.default, aten.new_empty.default),
    aten.as_strided.default: lambda node, value, *_: value[slices_of(node)],
    **LOOKUP_RULES,
    **_all(_same, aten.clone.default, aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default),
    **_all(_same, aten._to_copy.default, prims.convert_element_type.default),
    **_all(_same, aten.full_like.default, aten.zeros_like.default, aten.ones_like.default, aten.empty_like.default),
    **{getattr(prims, function.__name__).default: partial(_elementwise, function) for function in _PRIMS},
}
"""For each operation, the rule that computes it for a block of trainings. Operations that PyTorch tags as pointwise
need no rule of their own."""
