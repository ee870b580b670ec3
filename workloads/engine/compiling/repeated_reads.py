"""Which values of a step are worth storing, because other operations read each of their numbers several times.

PyTorch's compiler computes a pointwise operation anew wherever its numbers are read. In a matrix product that is once
for each column or row of the other factor.
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
    """Runs a graph, and stores what is worth it.

    What is stored lies in memory in another way than in the graph's trace, so what was a view there may need a copy.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self._stored = read_repeatedly(graph)

    def run_node(self, n: fx.Node) -> Any:
        """One operation."""
        if n.target is aten.view.default:
            found = aten.reshape.default(*self.fetch_args_kwargs_from_env(n)[0])
        else:
            found = super().run_node(n)
        return stored(found) if n in self._stored else found

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A constant of the graph."""
        value = super().get_attr(target, args, kwargs)
        return constant(value) if isinstance(value, Tensor) else value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """One operation, as the compiler takes it."""
        return _COMPILED_AS.get(target, target)(*args, **kwargs)


def _broadcast(value: Tensor, shape: Sequence[int], dims: Sequence[int]) -> Tensor:
    sizes = [1] * len(shape)
    for dim, size in zip(dims, value.shape, strict=True):
        sizes[dim] = size
    return value.reshape(sizes).expand(*shape)


def _variance(value: Tensor, dims: Sequence[int], correction: float = 1.0) -> Tensor:
    return value.var(list(dims), correction=correction)


_COMPILED_AS = {prims.broadcast_in_dim.default: _broadcast, prims.var.default: _variance}
"""Operations that a trace has and that PyTorch's compiler refuses."""


def read_repeatedly(graph: fx.GraphModule) -> set[fx.Node]:
    """The operations in the graph of one training whose values a block stores."""
    found = {origin(value) for node in graph.graph.nodes for value in _repeated(node)}
    return {node for node in found if node.op == "call_function" and _computes(node)}


def origin(node: fx.Node) -> fx.Node:
    """The operation, or the input, whose numbers a view shows."""
    while node.target in _VIEWS:
        (node,) = node.all_input_nodes
    return node


def stored(value: Tensor) -> Tensor:
    """The same value in memory of its own: the compiler has to store what is viewed by strides."""
    value = value.contiguous()
    return value.as_strided(value.shape, value.stride())


def _repeated(node: fx.Node) -> list[fx.Node]:
    """The inputs each of whose numbers an operation reads more than once."""
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
