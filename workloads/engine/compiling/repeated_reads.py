"""Decides which values of a step to store in memory, because other operations read their numbers several times.

PyTorch's compiler computes a pointwise operation again wherever its numbers are read. In a matrix product that happens
once per column or row of the other factor.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from attnsweep.workloads.engine.compiling.traces import constant

aten, prims = torch.ops.aten, torch.ops.prims

_VIEWS = {
    *(aten.view.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default),
    *(aten.expand.default, aten.permute.default, aten.select.int, aten.slice.Tensor, aten.diagonal.default),
    *(aten.as_strided.default, aten.alias.default, aten.detach.default, prims.broadcast_in_dim.default),
}
_CONSTANT = {
    *(aten.new_zeros.default, aten.new_ones.default, aten.new_full.default),
    *(aten.zeros_like.default, aten.ones_like.default, aten.full_like.default),
}


class Storing(fx.Interpreter):
    """Runs a graph, and stores in memory the values that several operations read (`read_repeatedly`).

    Stored values may have other strides than when the graph was traced, so a view of them may need a copy.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self._stored = read_repeatedly(graph)

    def run_node(self, n: fx.Node) -> Any:
        if n.target is aten.view.default:
            result = aten.reshape.default(*self.fetch_args_kwargs_from_env(n)[0])
        else:
            result = super().run_node(n)
        return stored(result) if n in self._stored else result

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return constant(value) if isinstance(value, Tensor) else value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _COMPILED_AS.get(target, target)(*args, **kwargs)


def _broadcast(value: Tensor, shape: Sequence[int], dims: Sequence[int]) -> Tensor:
    sizes = [1] * len(shape)
    for dim, size in zip(dims, value.shape, strict=True):
        sizes[dim] = size
    return value.reshape(sizes).expand(*shape)


def _variance(value: Tensor, dims: Sequence[int], correction: float = 1.0) -> Tensor:
    return value.var(list(dims), correction=correction)


_COMPILED_AS = {prims.broadcast_in_dim.default: _broadcast, prims.var.default: _variance}
"""Replacements of operations that occur in traces and that PyTorch's compiler refuses."""


def read_repeatedly(graph: fx.GraphModule) -> set[fx.Node]:
    """Returns the operations whose values are to be stored, because numbers of them are read more than once."""
    candidates = {origin(value) for node in graph.graph.nodes for value in _repeated(node)}
    return {node for node in candidates if node.op == "call_function" and _computes(node)}


def origin(node: fx.Node) -> fx.Node:
    """Follows views back to the operation or input whose numbers they show."""
    while node.target in _VIEWS:
        (node,) = node.all_input_nodes
    return node


def stored(value: Tensor) -> Tensor:
    """Makes the compiler store a value in memory, by viewing it with `as_strided`."""
    value = value.contiguous()
    return value.as_strided(value.shape, value.stride())


def _repeated(node: fx.Node) -> list[fx.Node]:
    """Returns those inputs of an operation of which it reads some numbers more than once."""
    if node.target in (aten.mm.default, aten.bmm.default):
        n_rows, n_columns = node.meta["val"].shape[-2:]
        a, b = node.all_input_nodes[0], node.all_input_nodes[-1]
        return [value for value, times in ((a, n_columns), (b, n_rows)) if times > 1]
    if torch.Tag.pointwise in getattr(node.target, "tags", ()) and isinstance(node.meta["val"], Tensor):
        return [value for value in node.all_input_nodes if _size(value) < _size(node)]
    return []


def _size(node: fx.Node) -> int:
    value = node.meta["val"]
    return value.numel() if isinstance(value, Tensor) else 0


def _computes(node: fx.Node) -> bool:
    return isinstance(node.meta["val"], Tensor) and bool(node.all_input_nodes) and node.target not in _CONSTANT
