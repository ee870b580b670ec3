"""Traces of functions of tensors as graphs of basic operations, and what they cost."""

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

from attnsweep.workloads.engine.compiling.untraceable import reason_of

aten = torch.ops.aten

IN_ONE_THREAD = threading.RLock()
"""Held by whoever traces or compiles: PyTorch keeps what it has traced so far in variables of its modules."""

LOOKUPS = (aten.embedding.default, aten.embedding_dense_backward.default)
"""Operations that are left whole, although others could express them."""


class NoRuleError(Exception):
    """An operation that cannot be computed for a block, or not fast."""


def traced(function: Callable[..., Any], examples: Sequence[Tensor]) -> fx.GraphModule:
    """The graph of a function of tensors, in basic operations and without mutations.

    Raises:
        NoRuleError: If it cannot be traced, as where it branches on a tensor's value.
    """
    try:
        # The attention that PyTorch fuses is one operation, without a rule.
        with IN_ONE_THREAD, sdpa_kernel(SDPBackend.MATH), OneHotByComparison(), _WithoutEmptyParts():
            graph = make_fx(
                functionalize(function, remove="mutations"), decomposition_table=_decompositions(), tracing_mode="fake"
            )(*examples)
    except Exception as error:
        raise NoRuleError(f"its step cannot be traced: {reason_of(error)}") from error
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def constants_of(graph: fx.GraphModule) -> dict[str, Tensor]:
    """The tensors that a graph holds, as of `torch.tensor([0.5, 2.0])` in a loss, by name."""
    names = [str(node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    found = {name: attrgetter(name)(graph) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def constant(value: Tensor) -> Tensor:
    """A graph's constant, number by number: the compiler refuses tensors that are no inputs."""
    of_type: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
    numbers = [torch.full((1,), each, **of_type) for each in tree_leaves(value.tolist())]
    return torch.cat(numbers).view(value.shape)


def count_numbers(function: Callable[[], object]) -> int:
    """How many numbers the basic operations of a computation compute, counted while they do.

    Unlike a trace it does not import PyTorch's compiler, and it counts results that nobody reads.
    """
    with sdpa_kernel(SDPBackend.MATH), _Counting() as counting:
        function()
    n_numbers: int = counting.n_numbers
    return n_numbers


def operations_of(graph: fx.GraphModule) -> list[fx.Node]:
    """The operations of a graph: how many there are is a measure of the time to compile it."""
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def numbers_of(graph: fx.GraphModule) -> int:
    """How many numbers its operations compute: a measure of the time that it takes."""
    found = (node.meta.get("val") for node in operations_of(graph))
    return sum(value.numel() for value in found if isinstance(value, Tensor))


def multiplications_of(graph: fx.GraphModule) -> int:
    """How many multiplications its matrix products have."""
    products: list[Any] = [each for each in operations_of(graph) if each.target in (aten.mm.default, aten.bmm.default)]
    return sum(each.meta["val"].numel() * each.args[0].meta["val"].shape[-1] for each in products)


class OneHotByComparison(TorchFunctionMode):
    """Computes one-hot vectors without a look at the values, which a trace has none of."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.nn.functional.one_hot:
            return func(*args, **(kwargs or {}))

        def one_hot(tensor: Tensor, num_classes: int) -> Tensor:
            return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64)

        return one_hot(*args, **(kwargs or {}))


class _WithoutEmptyParts(TorchFunctionMode):
    """Joins tensors without `torch.tensor([])`, to which Hugging Face's caches append: no constant for a program."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.cat and args:
            parts, *others = args
            args = ([each for each in parts if each.shape != (0,)] or parts, *others)
        return func(*args, **(kwargs or {}))


class _Counting(TorchDispatchMode):
    """Computes everything by basic operations, and counts the numbers that they compute.

    Attributes:
        n_numbers: So far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n_numbers = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # PyTorch would import its compiler to tell it not to compile this class.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.n_numbers += sum(each.numel() for each in tree_leaves(found) if isinstance(each, Tensor))
        return found


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
