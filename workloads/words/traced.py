"""Computes the terms ("words") of the gradients of any loss, from its traced program and from autograd's gradients at
the model's output: one term for each place where a weight is read.

A word is the gradient with respect to the weight as it is read at that place. It is split like C, the gradient of the
loss with respect to the output F: C at F = 0 is the part that pulls, and the remainder of C the part that brakes. Both
are split once more into parts: the means of C over groups of similar examples.

Axes: F output, of any shape; its last axis is a class axis if a softmax normalizes it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.engine_forms import without_dropout
from attnsweep.workloads.words.program import SOFTMAXES, VIEWS, Program, output_of, terms_of
from attnsweep.workloads.words.reading import Reading
from attnsweep.workloads.words.terms import GradientWords, Kind, Term, attention_maps

REST = "rest"
EVERYWHERE = "mean"
_COUNTS = 0.01
"""A part of the target is used if it contributes at least this share of the loss of the output 0."""
Groups = Mapping[str, Tensor]
"""The numbers (int64) of the groups to which the output's examples belong, by part of the target."""

_LEGEND = (
    "F is the output and C = dL/dF: C at F = 0 pulls, and the rest of C brakes; G(x) is the gradient with respect to "
    "a tensor x that is read several times; 1 is a column of ones, * multiplies entry by entry"
)


@dataclass(frozen=True)
class _Cotangent:
    kind: Kind
    part: str
    value: Tensor


@dataclass(frozen=True)
class _Judged:
    """The analysis of one term of the loss: the model output from which the term is computed, and the loss's gradient
    with respect to that output, split by the parts of the target.
    """

    output: fx.Node
    cotangents: Sequence[_Cotangent]
    zero_levels: Mapping[str, float]


def traced_words(program: Program, groups: Groups) -> GradientWords:
    """Computes the terms ("words") of the gradients of a traced loss. The terms of a weight add up to its gradient.

    Args:
        program: The loss.
        groups: Groups of examples. The means over each group make a part of the target with the group's name. The mean
            over all examples is always the first part, `mean`.
    """
    leaves = [value.clone() for value in program.values]
    for leaf, _ in zip(leaves, program.weights, strict=False):
        leaf.requires_grad_()
    with torch.enable_grad():
        values = program.run(leaves)
        judged = [_judged(program, values, term, groups) for term in terms_of(program, values)]
    main = max(judged, key=lambda judged_term: sum(judged_term.zero_levels.values()))
    reading = Reading(program, values, {judged_term.output for judged_term in judged})
    maps = [node for node in values if node.target == SOFTMAXES[0] and node not in _behind(main.output)]
    terms: list[Term] = []
    entering: dict[tuple[int, str], float] = {}
    for judged_term in judged:
        for cotangent in judged_term.cotangents:
            gradients = _pulled_back(program, values, judged_term.output, cotangent.value, maps)
            is_main = judged_term is main
            terms += _terms(program, reading, gradients, cotangent if is_main else _other(cotangent))
            if is_main:
                for at, node in enumerate(maps):
                    entering[at, cotangent.part] = entering.get((at, cotangent.part), 0.0) + float(
                        gradients[node].norm()
                    )
    return GradientWords(
        terms=terms,
        weights={name: value.detach() for name, value in zip(program.weights, leaves, strict=False)},
        zero_levels=main.zero_levels,
        is_opposed=False,
        legend="; ".join((_LEGEND, *reading.definitions())),
        is_product=False,
        maps=attention_maps([values[node] for node in maps], [node.args[1] for node in maps], entering),
    )


def whole_gradients(module: nn.Module, loss: Callable[[nn.Module, Batch], Tensor], batch: Batch) -> GradientWords:
    """Returns the gradient of each weight undivided, as a single term. This serves for a loss that cannot be traced
    operation by operation, so that the parts of its gradient are unknown."""
    weights = dict(module.named_parameters())
    with without_dropout():
        value = loss(module, batch)
    gradients = torch.autograd.grad(value, list(weights.values()), materialize_grads=True, allow_unused=True)
    return GradientWords(
        terms=[
            Term(weight=name, part="", kind="other", text=f"dL/d({name})", value=value)
            for name, value in zip(weights, gradients, strict=True)
        ],
        weights={name: value.detach() for name, value in weights.items()},
        zero_levels={},
        is_opposed=False,
        legend="the loss could not be traced operation by operation",
        is_product=False,
    )


def _judged(program: Program, values: Mapping[fx.Node, Any], term: fx.Node, groups: Groups) -> _Judged:
    output = output_of(program, values, term)
    if output is None:
        # This term of the loss does not depend on the model's output, for example a penalty on weights. So its gradient
        # comes neither from the target (kind `pull`) nor from the prediction (kind `brake`), and has the kind `other`.
        return _Judged(term, [_Cotangent("other", "", torch.ones_like(values[term]))], {})
    answer = values[output].detach()

    def cotangent(at: Tensor) -> Tensor:
        leaf = at.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(program.after(output, leaf, values, term), leaf)
        return gradient

    at_answer, pull = cotangent(answer), cotangent(torch.zeros_like(answer))
    has_classes = any(_is_normalized(node, output) for node in _behind(output))
    parts = list(_parts(answer, has_classes, groups))
    kinds: tuple[tuple[Kind, Tensor], ...] = (("pull", pull), ("brake", at_answer - pull))
    level = float(program.after(output, torch.zeros_like(answer), values, term))
    cotangents = [
        _Cotangent(kind, part, value) for kind, whole in kinds for part, value in _split(whole, parts, has_classes)
    ]
    curvature = _curvature(cotangent, pull)
    squares = {split.part: float(split.value.square().sum()) for split in cotangents if split.kind == "pull"}
    # `levels` estimates how much of the loss of a model with output 0 is due to each part of the target. The estimate
    # holds for a quadratic loss, and nearly for a softmax's loss, which is close to quadratic for small outputs.
    levels = {
        part: min(square / (2 * curvature), abs(level)) if curvature > 0 else 0.0 for part, square in squares.items()
    }
    total = sum(levels.values())
    return _Judged(output, cotangents, {part: value for part, value in levels.items() if value > _COUNTS * total})


def _other(cotangent: _Cotangent) -> _Cotangent:
    return _Cotangent("other", "", cotangent.value)


def _curvature(cotangent: Callable[[Tensor], Tensor], at_zero: Tensor) -> float:
    """Computes the second derivative of the loss with respect to the model's output, at the output 0 and along the
    loss's gradient there. Uses finite differences.

    `at_zero` is this gradient.
    """
    length = float(at_zero.norm())
    if length == 0:
        return 0.0
    step = 1e-4 / length
    return float(((cotangent(-step * at_zero) - at_zero) * -at_zero).sum()) / (step * length**2)


def _parts(answer: Tensor, has_classes: bool, groups: Groups) -> Iterator[tuple[str, Tensor]]:
    """Yields the ways in which the examples are grouped: the name of each, and each example's group number,
    (n_examples,). The first way puts all examples in one group.

    Each way makes a part of the target: the target's means over the groups.
    """
    examples = answer.shape[:-1] if has_classes else answer.shape
    yield EVERYWHERE, torch.zeros(examples.numel(), dtype=torch.int64)
    for name, group in groups.items():
        if group.numel() == examples.numel():
            yield name, torch.unique(group.flatten(), return_inverse=True)[1]


def _split(value: Tensor, groups: Sequence[tuple[str, Tensor]], has_classes: bool) -> Iterator[tuple[str, Tensor]]:
    """Splits a gradient with respect to the model's output into summands that are equal for similar examples, and a
    remainder.

    Each entry of `groups` sorts the examples into groups in one way. Its summand is the mean, over each of these
    groups, of what the earlier summands leave of the gradient.

    A part sorts the examples into groups. Its summand is the mean, over each group, of what the earlier summands leave
    of the gradient.
    """
    left_EC = value.reshape(groups[0][1].numel(), -1) if has_classes else value.reshape(-1, 1)
    counts_E = (left_EC != 0).any(1)
    for name, group_E in groups:
        n_groups = int(group_E.max()) + 1
        total = left_EC.new_zeros(n_groups, left_EC.shape[1]).index_add(0, group_E, left_EC)
        size = left_EC.new_zeros(n_groups).index_add(0, group_E, counts_E.to(left_EC.dtype)).clamp(min=1)
        mean_EC = (total / size[:, None])[group_E] * counts_E[:, None]
        yield name, mean_EC.reshape(value.shape)
        left_EC = left_EC - mean_EC
    yield REST, left_EC.reshape(value.shape)


def _pulled_back(
    program: Program, values: Mapping[fx.Node, Any], output: fx.Node, cotangent: Tensor, maps: Sequence[fx.Node]
) -> dict[fx.Node, Tensor]:
    """Propagates a gradient from the model's output back to each place where a weight is read, and to the logits of all
    attention softmaxes.
    """
    nodes = [*(place for _, place in program.places), *(node.all_input_nodes[0] for node in maps)]
    gradients = torch.autograd.grad(
        values[output], [values[node] for node in nodes], cotangent, retain_graph=True, allow_unused=True
    )
    full = [
        torch.zeros_like(values[node]) if value is None else value for node, value in zip(nodes, gradients, strict=True)
    ]
    by_node = dict(zip(nodes, full, strict=True))
    return by_node | {node: by_node[node.all_input_nodes[0]] for node in maps}


def _terms(
    program: Program, reading: Reading, gradients: Mapping[fx.Node, Tensor], cotangent: _Cotangent
) -> Iterator[Term]:
    for name, place in program.places:
        if reading.is_read(place):
            yield Term(
                weight=name,
                part=cotangent.part,
                kind=cotangent.kind,
                text=reading.word(place),
                value=gradients[place].detach(),
            )


def _behind(output: fx.Node) -> set[fx.Node]:
    """Returns all nodes of the graph whose values depend on a given node."""
    nodes: set[fx.Node] = set()
    queue = [output]
    while queue:
        for user in queue.pop().users:
            if user not in nodes:
                nodes.add(user)
                queue.append(user)
    return nodes


def _is_normalized(node: fx.Node, output: fx.Node) -> bool:
    """Returns whether a node of the graph is a softmax of the model's output, or of a view of it."""
    if node.target not in SOFTMAXES:
        return False
    (source,) = node.all_input_nodes
    while source is not output and source.target in VIEWS:
        (source,) = source.all_input_nodes
    return source is output
