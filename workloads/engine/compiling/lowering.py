"""Turns the graph of a training's step into nests of loops: which values are stored, and where."""

import operator
from collections.abc import Sequence
from math import prod
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx

from attnsweep.workloads.engine.compiling.emitting import Array, Loops, Overwritten, Stored, Value, extents_of
from attnsweep.workloads.engine.compiling.operations import COSTLY, c_type_of, form_of, name_of
from attnsweep.workloads.engine.compiling.rules import ENTRIES, IN_MEMORY, NESTS
from attnsweep.workloads.engine.compiling.views import VIEWS, Here, is_merging
from attnsweep.workloads.engine.executors import NoRuleError

_CHEAP, _COSTLY, _COST_CAP = 2, 8, 20
"""A value that at most `_CHEAP` operations compute is computed again by each reader. An exponential or division counts
for `_COSTLY` of them, and each value that it reads for at most `_COST_CAP`."""


class Program:
    """The nests of loops that compute a graph.

    Args:
        replaces: For each result the input that it replaces; `None` for a result with memory of its own.

    Attributes:
        inputs, results: Those of the graph, in its order.
        constants: The tensors in the graph, with their values.
    """

    def __init__(self, graph: fx.GraphModule, replaces: Sequence[int | None]) -> None:
        self._graph, self._nodes = graph, list(graph.graph.nodes)
        self._kept = _kept(self._nodes)
        self._homes = _homes(self._nodes, self._kept)
        try:
            self._lower(replaces, in_place=True)
        except Overwritten:
            self._lower(replaces, in_place=False)

    def _lower(self, replaces: Sequence[int | None], *, in_place: bool) -> None:
        self.loops, self.inputs, self.constants = Loops(), list[Stored](), list[tuple[Array, Tensor]]()
        self._joined: dict[fx.Node, Array] = {}
        values: dict[fx.Node, Value] = {}
        for node in self._nodes:
            match node.op:
                case "placeholder":
                    self.inputs.append(self._input(node.meta["val"]))
                    values[node] = self.inputs[-1]
                case "get_attr":
                    tensor = attrgetter(str(node.target))(self._graph)
                    values[node] = constant = self._input(tensor)
                    self.constants.append((constant.array, tensor))
                case "output":
                    self._end([values[each] for each in node.args[0]], replaces, in_place=in_place)
                case _:
                    values[node] = self._computed(node, values)

    def _input(self, like: Tensor) -> Stored:
        meta = torch.empty(like.shape, dtype=like.dtype, device="meta")
        return Stored(self.loops.array(c_type_of(like.dtype), like.numel(), is_input=True), meta)

    def _end(self, values: Sequence[Value], replaces: Sequence[int | None], *, in_place: bool) -> None:
        """Results of equal extents are stored in one nest, where each entry is read before it is replaced."""
        self.results = [
            self.loops.new(value.shape, value.dtype) if at is None else self.inputs[at]
            for value, at in zip(values, replaces, strict=True)
        ]
        pairs = sorted(zip(values, self.results, strict=True), key=lambda pair: extents_of(pair[1].shape))
        if not in_place:
            pairs = [(self.loops.copied(value), result) for value, result in pairs]
        for value, result in pairs:
            self.loops.write(result, value)
            if result.array.is_input:
                self.loops.overwritten.add(result.array)
        for result in self.results:
            result.array.used_by(len(self.loops.nests))

    def _computed(self, node: fx.Node, values: dict[fx.Node, Value]) -> Value:
        if node.target is operator.getitem:
            of_several: Any = values[node.args[0]]  # type: ignore[index]
            return of_several[node.args[1]]  # type: ignore[no-any-return]
        name = name_of(node.target)
        rule = VIEWS.get(name) or ENTRIES.get(name) or NESTS.get(name)
        if rule is None and form_of(name) is None:
            raise NoRuleError(f"the operation {node.target} cannot be compiled")
        here = Here(self.loops, node, self._homes, self._joined)
        arguments, named = fx.map_arg((node.args, node.kwargs), lambda each: values[each])  # type: ignore[arg-type, return-value]
        value = here.pointwise(*arguments, **named) if rule is None else rule(here, *arguments, **named)
        if node in self._kept and not isinstance(value, Stored | tuple):
            stored = here.new()
            self.loops.write(stored, value)
            return stored
        return value


def _name(node: fx.Node) -> str:
    return name_of(node.target) if node.op == "call_function" else ""


def _kept(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """The values to store: those that products, lookups and merging views read, and those that several nests, or many
    entries of a larger result, would compute again at some cost."""
    kept, cost = set[fx.Node](), dict[fx.Node, int]()
    for node in nodes:
        read = sum(min(cost[each], _COST_CAP) for each in node.all_input_nodes)
        is_computed = node.op == "call_function" and _name(node) not in NESTS
        own = 0 if _name(node) in VIEWS else _COSTLY if _name(node) in COSTLY else 1
        cost[node] = read + own if is_computed else 0
    # What stands for each nest that would compute the value: a stored value, a node with a nest, or results' extents.
    nests: dict[fx.Node, set[Any]] = {}
    for node in reversed(nodes):
        nests[node] = set()
        for user in node.users:
            if user.op == "output":
                nests[node].add(extents_of(node.meta["val"].shape))
            else:
                nests[node] |= {user} if user in kept or _name(user) in NESTS else nests[user]
        if node.op != "call_function" or _name(node) in (*NESTS, *VIEWS) or not node.all_input_nodes:
            continue
        readers = _readers(node)
        is_needed = any(_name(user) in IN_MEMORY or is_merging(user) for user in readers)
        is_repeated = cost[node] >= _COSTLY and any(
            _size(user) > _size(node) for user in readers if _name(user) not in NESTS
        )
        if is_needed or is_repeated or (len(nests[node]) > 1 and cost[node] > _CHEAP):
            kept.add(node)
    return kept


def _readers(node: fx.Node) -> list[fx.Node]:
    """What reads a value, or a view of it; merging views among them."""
    found = []
    for user in node.users:
        found += [user, *_readers(user)] if _name(user) in VIEWS else [user]
    return found


def _size(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, Tensor) else 0


def _homes(nodes: Sequence[fx.Node], kept: set[fx.Node]) -> dict[fx.Node, tuple[fx.Node, int]]:
    """For values that only one `cat` reads, whole and in order: this `cat`, and where they lie in it."""
    homes: dict[fx.Node, tuple[fx.Node, int]] = {}
    cat: Any
    for cat in nodes:
        shape = cat.meta["val"].shape if _name(cat) == "cat" else ()
        if not shape or prod(shape[: (cat.args[1] if len(cat.args) > 1 else 0) % len(shape)]) != 1:
            continue
        start = 0
        for part in cat.args[0]:
            origin, views = part, list[fx.Node]()
            while _name(origin) in VIEWS and len(origin.users) == 1:
                views.append(origin)
                origin = origin.args[0]
            is_stored = origin in kept or (_name(origin) in NESTS and _name(origin) != "cat")
            if is_stored and len(origin.users) == 1 and _is_whole(origin, views):
                homes[origin] = cat, start
            start += part.meta["val"].numel()
    return homes


def _is_whole(origin: fx.Node, views: Sequence[fx.Node]) -> bool:
    shown = torch.empty(origin.meta["val"].shape, device="meta")
    size = shown.numel()
    try:
        for view in reversed(views):
            if _name(view) != "clone":
                view_of: Any = view.target
                shown = view_of(shown, *view.args[1:], **view.kwargs)
    except RuntimeError:
        return False
    return shown.is_contiguous() and shown.numel() == size
