"""The terms ("words") of a training's gradients, matrix products that add up to a gradient; the state that they show,
such as starved (small) or balanced (cancelling); and attention maps.

A word pulls if it contains the target, and brakes if it contains the prediction. A word belongs to one part of the
target, such as its mean (written P) or the rest (I - P). docs/why.md explains the thresholds.

Axes: Q query, T key, H head.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionMap:
    """The attention weights of one head, averaged over a batch, with the head's name and how evenly its queries attend.

    Attributes:
        name: The head's name, such as `attention 1, head 2`.
        weights_QT: The weights, averaged over the batch.
        evenness: The mean entropy of a query's weights divided by the largest possible entropy: 1 is uniform. `None` if
            the weights do not come from a softmax.
        entering: The size of the gradient with respect to the logits, by part of the target: the terms with the target
            plus those with the prediction, for all heads of the layer together.
    """

    name: str
    weights_QT: Tensor
    evenness: float | None
    entering: Mapping[str, float] = field(default_factory=dict)


def attention_maps(
    weights: Sequence[Tensor], axes: Sequence[Any], entering: Mapping[tuple[int, str], float]
) -> list[AttentionMap]:
    """Returns the attention weights of all heads, given the results of all attention softmaxes in a traced loss.

    Args:
        weights: The results of the softmaxes, of any shape.
        axes: The axis over which each softmax normalizes: the keys. Of the other axes the last one is the queries, the
            first one the batch, and those between are heads.
        entering: The sizes of the gradients with respect to logits, by number of the softmax and part of the target.
    """
    maps = []
    for at, (value, axis) in enumerate(zip(weights, axes, strict=True)):
        moved = value.detach().movedim(axis, -1)
        if moved.dim() < 2:
            continue
        by_head = moved.reshape(1, *moved.shape) if moved.dim() == 2 else moved
        heads = by_head.mean(0).reshape(-1, *by_head.shape[-2:])
        evenness_H = evenness(by_head).reshape(by_head.shape[0], heads.shape[0], -1).mean((0, 2))
        parts = {part: size for (number, part), size in entering.items() if number == at}
        for head, weights_QT in enumerate(heads):
            name = f"attention {at + 1}" + (f", head {head + 1}" if heads.shape[0] > 1 else "")
            maps.append(
                AttentionMap(name=name, weights_QT=weights_QT, evenness=float(evenness_H[head]), entering=parts),
            )
    return maps


def evenness(weights: Tensor) -> Tensor:
    """Computes how evenly each query attends to the keys, (..., n_queries): the entropy of its attention weights
    divided by the largest possible entropy.
    """
    entropy = -torch.xlogy(weights, weights).sum(-1)
    n_seen = (weights > 0).sum(-1).clamp(min=1)
    return torch.where(n_seen > 1, entropy / n_seen.clamp(min=2).log(), torch.ones_like(entropy)).clamp(max=1.0)


Kind = Literal["pull", "brake", "other"]
"""The kind of a gradient's term: `pull` contains the target, `brake` the prediction. `other` is for terms of the loss
that judge no output, such as a penalty on weights."""

_STARVED = 0.8
"""A part of the target is starved if the gradient's terms about it are smaller than this, relative to the part's loss
at output 0. At a solution both the terms with the target and those with the prediction are 2 or more."""
_BALANCED = 0.35
"""The gradient's terms about a part of the target balance if the share that is left of their sum (`Balance.left`) is
below this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One term ("word") of the gradient with respect to a weight: the contribution of a single place where the loss
    reads the weight.

    Attributes:
        weight: The weight's name.
        part: The part of the target that the word is about; empty for `other`.
        kind: `pull` if the word contains the target, `brake` if it contains the prediction.
        text: The word as a formula.
        value: The word's numbers, in the weight's shape.
    """

    weight: str
    part: str
    kind: Kind
    text: str
    value: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Balance:
    """How far two kinds of terms cancel in the gradient of one weight: the terms that contain the target, and those
    that contain the prediction. Only terms about one part of the target, such as its mean, count.

    Attributes:
        weight: The weight's name.
        part: The part of the target.
        pull, brake: The sizes of the terms with the target and of those with the prediction: norm of the term times
            norm of the weight, divided by the part's loss at output 0.
        left: The norm of the sum of the terms divided by the sum of their norms: 0 if they cancel, 1 if there is one
            term or all are 0.
        work: The absolute inner products of pull and of brake with the weight, summed and divided by the part's loss at
            output 0; at most `size`.
    """

    weight: str
    part: str
    pull: float
    brake: float
    left: float
    work: float

    @property
    def size(self) -> float:
        return self.pull + self.brake


@dataclass(frozen=True, kw_only=True)
class GradientWords:
    """The terms that add up to the gradients of one training at its current weights, with the attention maps of the
    model.

    Attributes:
        terms: The terms. Those of one weight add up to its gradient.
        weights: The weights, by name.
        zero_levels: What each part of the target contributes to the loss of the output 0, by part; negligible parts are
            left out.
        is_opposed: Whether the pulls of two parts oppose each other, so that no step along both leads to the solution.
        legend: The meanings of the letters in the words, in one line.
        is_product: Whether every term is a product of all weights, so that one small weight makes the gradients of all
            others small.
        maps: The attention maps; empty if they are not known.
    """

    terms: Sequence[Term]
    weights: Mapping[str, Tensor]
    zero_levels: Mapping[str, float]
    is_opposed: bool
    legend: str
    is_product: bool = True
    maps: Sequence[AttentionMap] = ()

    def gradient(self, weight: str) -> Tensor:
        """Returns the gradient with respect to a weight: the sum of its terms."""
        return torch.stack([term.value for term in self.terms if term.weight == weight]).sum(0)

    def balances(self) -> list[Balance]:
        """Computes how far two kinds of terms cancel in the gradient of each weight: those that contain the target and
        those that contain the prediction. Does so for each part of the target, such as its mean, separately."""
        keys = dict.fromkeys((term.weight, term.part) for term in self.terms if term.part in self.zero_levels)
        return [self._balance(weight, part) for weight, part in keys]

    def growth(self) -> float:
        """Returns minus the inner product of gradient and weights. If it is positive, a step of gradient descent makes
        the weights' norm grow.
        """
        return -sum(float((self.gradient(name) * value).sum()) for name, value in self.weights.items())

    def starved_parts(self) -> list[str]:
        """Returns the parts of the target (such as its mean) that are hardly learned, because their gradient terms are
        small.

        If terms are products of all weights, it suffices that the terms of one weight are small. Otherwise those of all
        weights must be, measured by `Balance.work`.
        """
        return [part for part in self.zero_levels if self._fed(part) < _STARVED]

    def left(self, part: str) -> float:
        """Compares the sum of all gradient terms about one part of the target (such as the target's mean) with the
        sizes of the terms themselves. Returns 1 if no terms cancel, 0 if all do, and a number between if some do; NaN
        if a weight is not finite.

        If terms are products of all weights, it is the largest value of any weight; otherwise that of all weights
        together.
        """
        balances = self._balances_of(part)
        if self.is_product:
            return max(balances, key=lambda balance: (math.isnan(balance.left), balance.left)).left
        total = sum(balance.size for balance in balances)
        return sum(balance.left * balance.size for balance in balances) / total if total else 1.0

    def state(self) -> str:
        """Describes how the terms of the training's gradients stand: `starved` if they are so small that the training
        learns hardly anything, `balanced` if they cancel, `moving` if neither. The loss is not considered.

        One of `starved`, `balanced`, `bound`, `bound with growing norms`, `moving`, a combination such as `balanced in
        P, starved in I - P`, and `undivided` if it is not known which terms contain the target.
        """
        if not self.zero_levels:
            return "undivided"
        starved = self.starved_parts()
        fed = [part for part in self.zero_levels if part not in starved]
        if not fed:
            return "starved"
        # The condition is `not ... <` instead of `>=`: every comparison with NaN is false, and a part with NaN is not
        # balanced.
        if not all(self.left(part) < _BALANCED for part in fed):
            return "moving"
        if starved:
            return f"balanced in {', '.join(fed)}, starved in {', '.join(starved)}"
        if not self.is_opposed:
            return "balanced"
        return "bound with growing norms" if self.growth() > 0 else "bound"

    def _fed(self, part: str) -> float:
        if self.is_product:
            return min(balance.size for balance in self._balances_of(part))
        return max(balance.work for balance in self._balances_of(part))

    def _balances_of(self, part: str) -> list[Balance]:
        return [balance for balance in self.balances() if balance.part == part]

    def _balance(self, weight: str, part: str) -> Balance:
        terms = [term for term in self.terms if (term.weight, term.part) == (weight, part)]
        numbers = self.weights[weight]
        per_level = 1 / max(self.zero_levels[part], torch.finfo(torch.float64).tiny)
        scale = float(numbers.norm()) * per_level
        kinds = [[term.value for term in terms if term.kind == kind] for kind in ("pull", "brake")]
        pull, brake = (sum(float(value.norm()) for value in values) for values in kinds)
        work = sum(abs(sum(float((value * numbers).sum()) for value in values)) for values in kinds) * per_level
        both = pull + brake
        left = float(torch.stack([term.value for term in terms]).sum(0).norm()) / both if both else 1.0
        return Balance(weight=weight, part=part, pull=pull * scale, brake=brake * scale, left=left, work=work)
