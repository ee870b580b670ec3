"""The program of a loss: its basic operations, where each weight is read, and the output that the rest of it judges."""

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
"""Operations that show the numbers of one tensor in another order, or some of them."""
_UP_TO_OUTPUT = VIEWS | {aten.sum.dim_IntList}
SOFTMAXES = (aten._softmax.default, aten._log_softmax.default)


class NotTracedError(Exception):
    """The loss is no program of basic operations that can be followed; says why."""


@dataclass(frozen=True)
class Program:
    """A loss as a graph in which each weight is read through a node of its own at each place.

    Attributes:
        graph: Its inputs are the weights, buffers and tensors of the batch, in this order.
        names: The name of each input, by its node.
        values: The values of the inputs, in their order.
        weights: The nodes of the weights.
        places: For each place where a weight is read, the node that stands for it there.
    """

    graph: fx.GraphModule
    names: Mapping[fx.Node, str]
    values: Sequence[Tensor]
    weights: Mapping[str, fx.Node]
    places: Sequence[tuple[str, fx.Node]]

    @property
    def loss(self) -> fx.Node:
        """The node of the loss."""
        (output,) = self.graph.graph.output_node().all_input_nodes
        return output

    def dependent(self, values: Mapping[fx.Node, Any]) -> set[fx.Node]:
        """The nodes through which a gradient flows to a weight, given the values of all."""
        found = set(self.weights.values())
        for node in self.graph.graph.nodes:
            is_constant = isinstance(value := values.get(node), Tensor) and not value.requires_grad
            if not is_constant and any(each in found for each in node.all_input_nodes):
                found.add(node)
        return found

    def run(self, inputs: Sequence[Tensor]) -> dict[fx.Node, Any]:
        """The values of all nodes."""
        return _Recorder(self.graph).record(inputs)

    def after(self, output: fx.Node, value: Tensor, known: Mapping[fx.Node, Any], term: fx.Node) -> Tensor:
        """A term of the loss if the output had another value."""
        values: dict[fx.Node, Any] = {output: value}
        downstream = {output}
        for node in self.graph.graph.nodes:
            if node is output or not any(each in downstream for each in node.all_input_nodes):
                continue
            downstream.add(node)
            if node.op == "call_function":

                def now(each: fx.Node) -> Any:
                    return values.get(each, known.get(each))

                args, kwargs = fx.map_arg((node.args, node.kwargs), now)
                values[node] = node.target(*args, **kwargs)
            if node is term:
                break
        found: Tensor = values[term]
        return found


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps every value."""

    def record(self, inputs: Sequence[Tensor]) -> dict[fx.Node, Any]:
        self.kept: dict[fx.Node, Any] = {}
        self.run(*inputs)
        return self.kept

    def run_node(self, n: fx.Node) -> Any:
        value = self.kept[n] = super().run_node(n)
        return value


def program_of(module: nn.Module, loss: Callable[[nn.Module, Batch], Tensor], batch: Batch) -> Program:
    """Traces the loss of one training.

    Args:
        module: With the weights and buffers of the training.
        loss: The loss that it minimizes.
        batch: Its data.

    Raises:
        NotTracedError: If it cannot be traced.
    """
    weights = {name: value.detach() for name, value in module.named_parameters()}
    buffers = {name: value.detach() for name, value in module.named_buffers()}
    groups = (weights, buffers, batch)
    try:
        # The attention that PyTorch fuses is one operation.
        with sdpa_kernel(SDPBackend.MATH), OneHotByComparison():
            graph = make_fx(functionalize(one_lane(module, loss), remove="mutations"))(*groups)
    except Exception as error:
        raise NotTracedError(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
    graph.graph.eliminate_dead_code()
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    names = [name for group in groups for name in group]
    if len(names) != len(inputs):
        raise NotTracedError("its inputs are not the weights, buffers and data alone")
    of_weights = dict(zip(weights, inputs, strict=False))
    places = [(name, place) for name, node in of_weights.items() for place in _places(graph.graph, node)]
    graph.graph.lint()
    return Program(
        graph=graph,
        names=dict(zip(inputs, names, strict=True)),
        values=[value for group in groups for value in group.values()],
        weights=of_weights,
        places=places,
    )


def terms_of(program: Program, values: Mapping[fx.Node, Any]) -> list[fx.Node]:
    """The nodes whose sum is the loss, as the program adds them up; constants are left out."""
    dependent = program.dependent(values)

    def split(node: fx.Node) -> Iterator[fx.Node]:
        if node.target == aten.add.Tensor and "alpha" not in node.kwargs and len(node.all_input_nodes) == 2:
            for each in node.all_input_nodes:
                if each in dependent:
                    yield from split(each)
        else:
            yield node

    return list(split(program.loss))


def output_of(program: Program, values: Mapping[fx.Node, Any], term: fx.Node) -> fx.Node | None:
    """The output that a term of the loss judges: the last tensor that the weights enter, if the term depends on them
    through it alone; `None` if there is none.

    Args:
        program: The loss.
        values: Those of its nodes.
        term: From `terms_of`.
    """
    mine = ancestors(term) & program.dependent(values)
    order: list[fx.Node] = [node for node in program.graph.graph.nodes if node in mine]
    last = max((order.index(reader) for _, place in program.places if (reader := reader_of(place)) in mine), default=0)
    for node in order[last:]:
        if node is term or not isinstance(values[node], Tensor) or values[node].dim() == 0:
            return None
        if _passes_all(order, program, node, term):
            return _to_the_end(node, values, term)
    return None


def _to_the_end(node: fx.Node, values: Mapping[fx.Node, Any], term: fx.Node) -> fx.Node:
    """The last of the tensors that show a tensor's numbers, or sums of them, one after the other."""
    while len(node.users) == 1:
        (after,) = node.users
        if after.target not in _UP_TO_OUTPUT or after is term or values[after].dim() == 0:
            break
        node = after
    return node


def _passes_all(order: Sequence[fx.Node], program: Program, node: fx.Node, term: fx.Node) -> bool:
    """Whether every path from a weight to the term passes through a node."""
    reached = {place for _, place in program.places}
    for each in order:
        if each is not node and any(before in reached for before in each.all_input_nodes):
            reached.add(each)
    return term not in reached


def ancestors(node: fx.Node) -> set[fx.Node]:
    """The node and all that its value depends on."""
    found, queue = {node}, [node]
    while queue:
        for each in queue.pop().all_input_nodes:
            if each not in found:
                found.add(each)
                queue.append(each)
    return found


def reader_of(node: fx.Node) -> fx.Node:
    """What reads a weight at one place, behind all views of it; each view has one reader."""
    while node.target in VIEWS and node.users:
        node = next(iter(node.users))
    return node


def _places(graph: fx.Graph, weight: fx.Node) -> list[fx.Node]:
    """Puts a node of its own between a weight and each of its readers; a view is copied for each reader."""
    _copy_views(graph, weight)
    places = []
    for user in list(weight.users):
        with graph.inserting_before(user):
            place = graph.call_function(aten.alias.default, (weight,))
        user.replace_input_with(weight, place)
        places.append(place)
    return places


def _copy_views(graph: fx.Graph, node: fx.Node) -> None:
    """Copies views until each has one reader."""
    for user in list(node.users):
        if user.target not in VIEWS:
            continue
        _copy_views(graph, user)
        for reader in list(user.users)[1:]:
            with graph.inserting_before(user):
                copy = graph.node_copy(user)
            reader.replace_input_with(user, copy)
