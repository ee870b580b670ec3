"""Traces functions of tensors as graphs of basic operations, and decides which intermediate values to store in memory.

PyTorch's compiler computes a pointwise operation again wherever its numbers are read. In a matrix product that happens
once per column or row of the other factor. Values that other operations read several times are therefore stored.
"""

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnsweep.workloads.engine.vectorization import reason_of

aten = torch.ops.aten

IN_ONE_THREAD = threading.RLock()
"""The lock that a thread must take to trace or compile, because PyTorch stores the state of a trace in globals."""

LOOKUPS = (aten.embedding.default, aten.embedding_dense_backward.default)
"""Operations that are not split into more basic ones, because `lookups` has rules for them."""


class NoRuleError(Exception):
    """Raised if a function cannot be compiled to be computed for many trainings at once, or if compiling it would save
    no time."""


def traced(function: Callable[..., Any], examples: Sequence[Tensor]) -> fx.GraphModule:
    """Traces a function of tensors as a graph of basic operations, none of which changes a tensor in place.

    Raises:
        NoRuleError: If the function cannot be traced, for example because it branches on a tensor's value.
    """
    try:
        # The MATH backend computes attention by basic operations. PyTorch's fused attention would be a single operation
        # that our compiler cannot translate.
        with IN_ONE_THREAD, sdpa_kernel(SDPBackend.MATH), OneHotByComparison(), _WithoutEmptyParts():
            graph = make_fx(
                functionalize(function, remove="mutations"), decomposition_table=_decompositions(), tracing_mode="fake"
            )(*examples)
    except Exception as error:
        raise NoRuleError(f"the training step cannot be traced: {reason_of(error)}") from error
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def constants_of(graph: fx.GraphModule) -> dict[str, Tensor]:
    """Returns by name the constant tensors of a graph, such as one from `torch.tensor([0.5, 2.0])` in a loss."""
    names = [str(node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    values = {name: attrgetter(name)(graph) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def constant(value: Tensor) -> Tensor:
    """Builds a constant tensor from Python numbers within the graph.

    PyTorch's compiler accepts tensors only as inputs of a graph, so the graph may not hold the tensor itself.
    """
    options: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
    numbers = [torch.full((1,), number, **options) for number in tree_leaves(value.tolist())]
    return torch.cat(numbers).view(value.shape)


def count_numbers(function: Callable[[], object]) -> int:
    """Runs a function and counts the values that its basic operations compute.

    Unlike tracing, this does not import PyTorch's compiler, and it also counts results that nothing uses.
    """
    with sdpa_kernel(SDPBackend.MATH), _Counting() as counting:
        function()
    n_numbers: int = counting.n_numbers
    return n_numbers


def operations_of(graph: fx.GraphModule) -> list[fx.Node]:
    """Returns the operations of a graph. Their number is a measure of the graph's time to compile."""
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def numbers_of(graph: fx.GraphModule) -> int:
    """Counts the values that the operations of a graph compute: a measure of its run time."""
    values = (node.meta.get("val") for node in operations_of(graph))
    return sum(value.numel() for value in values if isinstance(value, Tensor))


def multiplications_of(graph: fx.GraphModule) -> int:
    """Counts the scalar multiplications in all matrix products of a graph."""
    products: list[Any] = [
        product for product in operations_of(graph) if product.target in (aten.mm.default, aten.bmm.default)
    ]
    return sum(product.meta["val"].numel() * product.args[0].meta["val"].shape[-1] for product in products)


class OneHotByComparison(TorchFunctionMode):
    """A context in which `one_hot` does not check that its input is in range. During tracing the check would fail,
    because tensors have no values then."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.nn.functional.one_hot:
            return func(*args, **(kwargs or {}))

        def one_hot(tensor: Tensor, num_classes: int) -> Tensor:
            return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64)

        return one_hot(*args, **(kwargs or {}))


class _WithoutEmptyParts(TorchFunctionMode):
    """Hugging Face's caches begin with empty tensors, constants that the compiler refuses: `torch.cat` skips them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.cat and args:
            parts, *others = args
            args = ([part for part in parts if part.shape != (0,)] or parts, *others)
        return func(*args, **(kwargs or {}))


class _Counting(TorchDispatchMode):
    """A context that counts the values that basic operations compute. The count is the attribute `n_numbers`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n_numbers = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # PyTorch asks here whether its compiler should skip this class. If the answer were True, PyTorch would import
        # the compiler just to tell it so.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.n_numbers += sum(value.numel() for value in tree_leaves(result) if isinstance(value, Tensor))
        return result


def _decompositions() -> dict[Any, Callable[..., Any]]:
    further = [
        *(aten.addmm, aten.baddbmm, aten.mv, aten.dot, aten.addcmul, aten.addcdiv, aten.lerp, aten.mse_loss),
        *(aten._softmax, aten._softmax_backward_data, aten._log_softmax, aten._log_softmax_backward_data),
        *(aten.native_layer_norm, aten.native_layer_norm_backward, aten.native_batch_norm, aten.var_mean, aten.std),
        *(aten.select_backward, aten.slice_backward, aten.diagonal_backward, aten.threshold_backward),
        *(aten.unbind, aten.split, aten.split_with_sizes, aten.stack, aten.t, aten.transpose, aten.trace),
    ]
    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    table.update(get_decompositions(further))
    return {operation: function for operation, function in table.items() if operation not in LOOKUPS}


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
    """Runs a graph with `stored` applied to each value that is read more than once, in whole or in part. The compiler
    then keeps these values in memory instead of computing them again.

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


def broadcast_in_dim(value: Tensor, shape: Sequence[int], dims: Sequence[int]) -> Tensor:
    """Expands a tensor to a given shape. Its axes go to the positions `dims`, as in the operation of this name in
    PyTorch's `prims`."""
    sizes = [1] * len(shape)
    for dim, size in zip(dims, value.shape, strict=True):
        sizes[dim] = size
    return value.reshape(sizes).expand(*shape)


_COMPILED_AS: dict[Any, Callable[..., Tensor]] = {
    prims.broadcast_in_dim.default: broadcast_in_dim,
    prims.var.default: lambda value, dims, correction=1.0: value.var(list(dims), correction=correction),
}
"""For operations that occur in traces but that PyTorch's compiler refuses, the functions used in their place."""


def read_repeatedly(graph: fx.GraphModule) -> set[fx.Node]:
    """Returns the operations whose results are worth storing in memory, because other operations read parts of these
    results more than once."""
    candidates = {origin(value) for node in graph.graph.nodes for value in _repeated(node)}
    return {node for node in candidates if node.op == "call_function" and _computes(node)}


def origin(node: fx.Node) -> fx.Node:
    """Finds the operation or graph input whose result a node only reshapes or transposes."""
    while node.target in _VIEWS:
        (node,) = node.all_input_nodes
    return node


def stored(value: Tensor) -> Tensor:
    """Makes the compiler store a value in memory instead of computing it again at each use.

    It does so for views made with `as_strided`, so the value is returned as one.
    """
    value = value.contiguous()
    return value.as_strided(value.shape, value.stride())


def _repeated(node: fx.Node) -> list[fx.Node]:
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
