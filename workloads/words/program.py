"""Traces a loss as a graph of basic operations, and finds where the graph reads weights and from which model output
each term of the loss is computed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnsweep.workloads.engine.compiling.traces import OneHotByComparison
from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.functional import one_lane

aten = torch.ops.aten

VIEWS = frozenset(
    {
        *(aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.alias.default, aten.detach.default),
        *(aten.t.default, aten.transpose.int, aten.permute.default, aten.expand.default, aten.unsqueeze.default),
        *(aten.squeeze.dim, aten.squeeze.default, aten.squeeze.dims, aten.squeeze_.dim, aten.squeeze_.default),
        *(aten.select.int, aten.slice.Tensor, aten.clone.default, aten.view_as.default, aten.lift_fresh_copy.default),
    }
)
"""Operations that only rearrange the numbers of one input, or select some of them."""
_UP_TO_OUTPUT = VIEWS | {aten.sum.dim_IntList}
SOFTMAXES = (aten._softmax.default, aten._log_softmax.default)


class NotTracedError(Exception):
    """Raised if a loss cannot be traced as a program of basic operations. The message says why."""


@dataclass(frozen=True)
class Program:
    """The graph of a loss, with a separate node for every place at which the loss reads a weight.

    Attributes:
        graph: The graph. Its inputs are the weights, the buffers and the tensors of the batch, in this order.
        names: The names of the inputs, by node.
        values: The values of the inputs, in the order of the graph.
        weights: The input nodes of the weights, by name.
        places: The places where weights are read: (name of the weight, node that passes the weight on to one reader).
    """

    graph: fx.GraphModule
    names: Mapping[fx.Node, str]
    values: Sequence[Tensor]
    weights: Mapping[str, fx.Node]
    places: Sequence[tuple[str, fx.Node]]

    @property
    def loss(self) -> fx.Node:
        (output,) = self.graph.graph.output_node().all_input_nodes
        return output

    def dependent(self, values: Mapping[fx.Node, Any]) -> set[fx.Node]:
        """Returns the nodes of the graph through which a gradient flows to some weight."""
        dependent = set(self.weights.values())
        for node in self.graph.graph.nodes:
            is_constant = isinstance(value := values.get(node), Tensor) and not value.requires_grad
            if not is_constant and any(source in dependent for source in node.all_input_nodes):
                dependent.add(node)
        return dependent

    def run(self, inputs: Sequence[Tensor]) -> dict[fx.Node, Any]:
        """Runs the graph, which computes a loss, on the given inputs, and returns the values of all its nodes."""
        return _Recorder(self.graph).record(inputs)

    def after(self, output: fx.Node, value: Tensor, known: Mapping[fx.Node, Any], term: fx.Node) -> Tensor:
        """Computes the value that a term of the loss would have if the output of the model were replaced by another
        tensor.

        `known` has the values of all nodes in the original run.
        """
        values: dict[fx.Node, Any] = {output: value}
        downstream = {output}
        for node in self.graph.graph.nodes:
            if node is output or not any(source in downstream for source in node.all_input_nodes):
                continue
            downstream.add(node)
            if node.op == "call_function":

                def now(source: fx.Node) -> Any:
                    return values.get(source, known.get(source))

                args, kwargs = fx.map_arg((node.args, node.kwargs), now)
                values[node] = node.target(*args, **kwargs)
            if node is term:
                break
        result: Tensor = values[term]
        return result


class _Recorder(fx.Interpreter):
    def record(self, inputs: Sequence[Tensor]) -> dict[fx.Node, Any]:
        self.recorded: dict[fx.Node, Any] = {}
        self.run(*inputs)
        return self.recorded

    def run_node(self, n: fx.Node) -> Any:
        value = self.recorded[n] = super().run_node(n)
        return value


def program_of(module: nn.Module, loss: Callable[[nn.Module, Batch], Tensor], batch: Batch) -> Program:
    """Traces the loss of one training as a graph of basic operations, with a separate node for every place where a
    weight is read.

    Args:
        module: The module with the weights and buffers of the training.
        loss: The loss, a function of module and batch.
        batch: The data.

    Raises:
        NotTracedError: If the loss cannot be traced.
    """
    weights = {name: value.detach() for name, value in module.named_parameters()}
    buffers = {name: value.detach() for name, value in module.named_buffers()}
    groups = (weights, buffers, batch)
    try:
        # The MATH backend splits attention into basic operations, so the graph shows the attention weights. PyTorch's
        # fused attention would be a single operation that hides them.
        with sdpa_kernel(SDPBackend.MATH), OneHotByComparison():
            graph = make_fx(functionalize(one_lane(module, loss), remove="mutations"))(*groups)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise NotTracedError(reason) from error
    graph.graph.eliminate_dead_code()
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    names = [name for group in groups for name in group]
    if len(names) != len(inputs):
        raise NotTracedError("the traced graph has more or fewer inputs than the weights, buffers and data")
    weight_nodes = dict(zip(weights, inputs, strict=False))
    places = [(name, place) for name, node in weight_nodes.items() for place in _places(graph.graph, node)]
    graph.graph.lint()
    return Program(
        graph=graph,
        names=dict(zip(inputs, names, strict=True)),
        values=[value for group in groups for value in group.values()],
        weights=weight_nodes,
        places=places,
    )


def terms_of(program: Program, values: Mapping[fx.Node, Any]) -> list[fx.Node]:
    """Returns the terms whose sum is the loss, without those that depend on no weight."""
    dependent = program.dependent(values)

    def split(node: fx.Node) -> Iterator[fx.Node]:
        if node.target == aten.add.Tensor and "alpha" not in node.kwargs and len(node.all_input_nodes) == 2:
            for source in node.all_input_nodes:
                if source in dependent:
                    yield from split(source)
        else:
            yield node

    return list(split(program.loss))


def output_of(program: Program, values: Mapping[fx.Node, Any], term: fx.Node) -> fx.Node | None:
    """Finds the model's output from which one summand of the loss is computed. Returns `None` if no single tensor
    passes on the effect of all weights to this summand.

    The output is the last tensor that weights enter, provided that the term depends on weights through it alone.

    Args:
        program: The loss.
        values: The values of the program's nodes.
        term: One of `terms_of`.
    """
    dependent_ancestors = ancestors(term) & program.dependent(values)
    order: list[fx.Node] = [node for node in program.graph.graph.nodes if node in dependent_ancestors]
    last = max(
        (order.index(reader) for _, place in program.places if (reader := reader_of(place)) in dependent_ancestors),
        default=0,
    )
    for node in order[last:]:
        if node is term or not isinstance(values[node], Tensor) or values[node].dim() == 0:
            return None
        if _passes_all(order, program, node, term):
            return _to_the_end(node, values, term)
    return None


def _to_the_end(node: fx.Node, values: Mapping[fx.Node, Any], term: fx.Node) -> fx.Node:
    """Follows a tensor through the views and sums that are applied to it in the graph, and returns the last result.

    It stops at a tensor that is used more than once or by another operation, and before a scalar.
    """
    while len(node.users) == 1:
        (after,) = node.users
        if after.target not in _UP_TO_OUTPUT or after is term or values[after].dim() == 0:
            break
        node = after
    return node


def _passes_all(order: Sequence[fx.Node], program: Program, node: fx.Node, term: fx.Node) -> bool:
    """Returns whether a term of the loss depends on weights through `node` alone: every path in the graph from a weight
    to the term goes through it.
    """
    reached = {place for _, place in program.places}
    for other in order:
        if other is not node and any(source in reached for source in other.all_input_nodes):
            reached.add(other)
    return term not in reached


def ancestors(node: fx.Node) -> set[fx.Node]:
    """Returns a node of the graph and all nodes on which its value depends."""
    ancestors, queue = {node}, [node]
    while queue:
        for source in queue.pop().all_input_nodes:
            if source not in ancestors:
                ancestors.add(source)
                queue.append(source)
    return ancestors


def reader_of(node: fx.Node) -> fx.Node:
    """Returns the operation that computes with a weight, given the node that reads the weight. Operations that only
    rearrange the weight (views) are skipped."""
    while node.target in VIEWS and node.users:
        node = next(iter(node.users))
    return node


def _places(graph: fx.Graph, weight: fx.Node) -> list[fx.Node]:
    """Inserts a separate node between a weight and each operation that reads it, so that the gradient's term from each
    reader can be computed separately. Returns these nodes.

    A view of the weight with several readers is copied first, once for each reader.
    """
    _copy_views(graph, weight)
    places = []
    for user in list(weight.users):
        with graph.inserting_before(user):
            place = graph.call_function(aten.alias.default, (weight,))
        user.replace_input_with(weight, place)
        places.append(place)
    return places


def _copy_views(graph: fx.Graph, node: fx.Node) -> None:
    """Changes the graph so that only one operation reads each view of a node, such as its transpose: a view that
    several operations read is copied for each of them."""
    for user in list(node.users):
        if user.target not in VIEWS:
            continue
        _copy_views(graph, user)
        for reader in list(user.users)[1:]:
            with graph.inserting_before(user):
                copy = graph.node_copy(user)
            reader.replace_input_with(user, copy)
