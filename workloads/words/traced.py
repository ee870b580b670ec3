"""The words of any loss, from its program and autograd's cotangents: one for each place where a weight is read.

A word is the gradient by the weight as it is read there. It pulls and brakes as the gradient C of the loss by the
output F does: C at F = 0 pulls, and what C is beyond that brakes. Both split once more into parts, the means of C over
groups of examples that look alike.

Axes: F output, of any shape; its last axis is a class axis if a softmax normalizes it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from attnsweep.workloads.engine.contract import Batch
from attnsweep.workloads.engine.engine_forms import without_dropout
from attnsweep.workloads.words.attention_maps import attention_maps
from attnsweep.workloads.words.program import SOFTMAXES, VIEWS, Program, output_of, terms_of
from attnsweep.workloads.words.reading import Reading
from attnsweep.workloads.words.terms import GradientWords, Kind, Term

REST = "rest"
EVERYWHERE = "mean"
_COUNTS = 0.01
"""The least share of the loss of predicting 0 with which a part counts."""
Groups = Mapping[str, Tensor]
"""By part, the group (int64) of each example of the output."""

_LEGEND = (
    "F is the output and C = dL/dF: of it, C at F = 0 pulls, and the rest brakes; G(.) is the gradient by a tensor "
    "that is read several times; 1 is a column of ones, * multiplies entry by entry"
)


@dataclass(frozen=True)
class _Cotangent:
    kind: Kind
    part: str
    value: Tensor


@dataclass(frozen=True)
class _Judged:
    """A term of the loss, its output and the cotangents there."""

    output: fx.Node
    cotangents: Sequence[_Cotangent]
    zero_levels: Mapping[str, float]


def traced_words(program: Program, groups: Groups) -> GradientWords:
    """The words of a loss. They add up to its gradient.

    Args:
        program: The loss.
        groups: Groups of examples whose means are parts; all examples are one group, the first part, in any case.
    """
    leaves = [value.clone() for value in program.values]
    for leaf, _ in zip(leaves, program.weights, strict=False):
        leaf.requires_grad_()
    with torch.enable_grad():
        values = program.run(leaves)
        judged = [_judged(program, values, term, groups) for term in terms_of(program, values)]
    main = max(judged, key=lambda each: sum(each.zero_levels.values()))
    reading = Reading(program, values, {each.output for each in judged})
    maps = [node for node in values if node.target == SOFTMAXES[0] and node not in _behind(main.output)]
    terms: list[Term] = []
    into: dict[tuple[int, str], float] = {}
    for each in judged:
        for cotangent in each.cotangents:
            found = _pulled_back(program, values, each.output, cotangent.value, maps)
            is_main = each is main
            terms += _terms(program, reading, found, cotangent if is_main else _other(cotangent))
            if is_main:
                for at, node in enumerate(maps):
                    into[at, cotangent.part] = into.get((at, cotangent.part), 0.0) + float(found[node].norm())
    return GradientWords(
        terms=terms,
        weights={name: value.detach() for name, value in zip(program.weights, leaves, strict=False)},
        zero_levels=main.zero_levels,
        is_opposed=False,
        legend="; ".join((_LEGEND, *reading.definitions())),
        is_product=False,
        maps=attention_maps([values[node] for node in maps], [node.args[1] for node in maps], into),
    )


def whole_gradients(module: nn.Module, loss: Callable[[nn.Module, Batch], Tensor], batch: Batch) -> GradientWords:
    """One word for each weight, its gradient: of a loss that is no program of basic operations."""
    weights = dict(module.named_parameters())
    with without_dropout():
        value = loss(module, batch)
    found = torch.autograd.grad(value, list(weights.values()), materialize_grads=True, allow_unused=True)
    return GradientWords(
        terms=[
            Term(weight=name, part="", kind="other", text=f"dL/d({name})", value=value)
            for name, value in zip(weights, found, strict=True)
        ],
        weights={name: value.detach() for name, value in weights.items()},
        zero_levels={},
        is_opposed=False,
        legend="the loss could not be followed operation by operation",
        is_product=False,
    )


def _judged(program: Program, values: Mapping[fx.Node, Any], term: fx.Node, groups: Groups) -> _Judged:
    output = output_of(program, values, term)
    if output is None:
        # It is no loss of an output, such as a penalty on weights.
        return _Judged(term, [_Cotangent("other", "", torch.ones_like(values[term]))], {})
    answer = values[output].detach()

    def cotangent(at: Tensor) -> Tensor:
        leaf = at.clone().requires_grad_()
        (found,) = torch.autograd.grad(program.after(output, leaf, values, term), leaf)
        return found

    whole, asked = cotangent(answer), cotangent(torch.zeros_like(answer))
    has_classes = any(_is_normalized(node, output) for node in _behind(output))
    of_parts = list(_parts(answer, has_classes, groups))
    kinds: tuple[tuple[Kind, Tensor], ...] = (("pull", asked), ("brake", whole - asked))
    level = float(program.after(output, torch.zeros_like(answer), values, term))
    cotangents = [
        _Cotangent(kind, part, value) for kind, of in kinds for part, value in _split(of, of_parts, has_classes)
    ]
    curvature = _curvature(cotangent, asked)
    asks = {each.part: float(each.value.square().sum()) for each in cotangents if each.kind == "pull"}
    # The loss of a quadratic, which one of a softmax is at small outputs; no part can ask for more than all there is.
    levels = {part: min(ask / (2 * curvature), abs(level)) if curvature > 0 else 0.0 for part, ask in asks.items()}
    total = sum(levels.values())
    return _Judged(output, cotangents, {part: value for part, value in levels.items() if value > _COUNTS * total})


def _other(cotangent: _Cotangent) -> _Cotangent:
    return _Cotangent("other", "", cotangent.value)


def _curvature(cotangent: Callable[[Tensor], Tensor], asked: Tensor) -> float:
    """Of the loss at output 0, in the direction of its steepest descent."""
    length = float(asked.norm())
    if length == 0:
        return 0.0
    step = 1e-4 / length
    return float(((cotangent(-step * asked) - asked) * -asked).sum()) / (step * length**2)


def _parts(answer: Tensor, has_classes: bool, groups: Groups) -> Iterator[tuple[str, Tensor]]:
    """The groups (E,) of the E examples, by part."""
    examples = answer.shape[:-1] if has_classes else answer.shape
    yield EVERYWHERE, torch.zeros(examples.numel(), dtype=torch.int64)
    for name, group in groups.items():
        if group.numel() == examples.numel():
            yield name, torch.unique(group.flatten(), return_inverse=True)[1]


def _split(of: Tensor, parts: Sequence[tuple[str, Tensor]], has_classes: bool) -> Iterator[tuple[str, Tensor]]:
    """A cotangent as the sum of its parts: means over groups, each of what the parts before have left; and the rest."""
    left_EC = of.reshape(parts[0][1].numel(), -1) if has_classes else of.reshape(-1, 1)
    counts_E = (left_EC != 0).any(1)
    for name, group_E in parts:
        n_groups = int(group_E.max()) + 1
        total = left_EC.new_zeros(n_groups, left_EC.shape[1]).index_add(0, group_E, left_EC)
        size = left_EC.new_zeros(n_groups).index_add(0, group_E, counts_E.to(left_EC.dtype)).clamp(min=1)
        mean_EC = (total / size[:, None])[group_E] * counts_E[:, None]
        yield name, mean_EC.reshape(of.shape)
        left_EC = left_EC - mean_EC
    yield REST, left_EC.reshape(of.shape)


def _pulled_back(
    program: Program, values: Mapping[fx.Node, Any], output: fx.Node, cotangent: Tensor, maps: Sequence[fx.Node]
) -> dict[fx.Node, Tensor]:
    """The gradients by the weights at their places, and by the logits of each attention."""
    nodes = [*(place for _, place in program.places), *(node.all_input_nodes[0] for node in maps)]
    found = torch.autograd.grad(
        values[output], [values[node] for node in nodes], cotangent, retain_graph=True, allow_unused=True
    )
    full = [
        torch.zeros_like(values[node]) if value is None else value for node, value in zip(nodes, found, strict=True)
    ]
    by_node = dict(zip(nodes, full, strict=True))
    return by_node | {node: by_node[node.all_input_nodes[0]] for node in maps}


def _terms(
    program: Program, reading: Reading, found: Mapping[fx.Node, Tensor], cotangent: _Cotangent
) -> Iterator[Term]:
    for name, place in program.places:
        if reading.is_read(place):
            yield Term(
                weight=name,
                part=cotangent.part,
                kind=cotangent.kind,
                text=reading.word(place),
                value=found[place].detach(),
            )


def _behind(output: fx.Node) -> set[fx.Node]:
    """All that is computed from a node."""
    found: set[fx.Node] = set()
    queue = [output]
    while queue:
        for user in queue.pop().users:
            if user not in found:
                found.add(user)
                queue.append(user)
    return found


def _is_normalized(node: fx.Node, output: fx.Node) -> bool:
    """Whether a node is the softmax of the output itself."""
    if node.target not in SOFTMAXES:
        return False
    (source,) = node.all_input_nodes
    while source is not output and source.target in VIEWS:
        (source,) = source.all_input_nodes
    return source is output
