"""The words of a training's gradients where it stands, and what they say about it: starved, balanced, bound or moving.

A word pulls if it contains the target, and brakes if it contains the prediction. Each belongs to one part of the
target, such as its mean P and the rest I - P. Thresholds: docs/why.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnsweep.workloads.words.attention_maps import AttentionMap

Kind = Literal["pull", "brake", "other"]
"""`other`: of a term of the loss that judges no output, such as a penalty on weights."""

_STARVED = 0.8
"""In units of a part's own zero level. At a solution pull and brake are 2 or more each."""
_BALANCED = 0.35
"""What is left of a part's words, as a share, below which they balance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One word of the gradient by a weight.

    Attributes:
        weight: The weight's name.
        part: The part of the target that it is about; empty for `other`.
        kind: `pull` if it contains the target, `brake` if it contains the prediction.
        text: The word, to be read.
        value: Its numbers, in the weight's shape.
    """

    weight: str
    part: str
    kind: Kind
    text: str
    value: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Balance:
    """The words of one weight and one part.

    Attributes:
        weight: The weight's name.
        part: The part.
        pull, brake: The terms' sizes: norm times the weight's norm, over the part's zero level.
        left: The norm of the sum of the words over the sum of their norms: 0 where they cancel, 1 where one is alone;
            1 too if all are 0.
        work: The sizes of the products of pull and of brake with the weight, over the zero level; at most `size`.
    """

    weight: str
    part: str
    pull: float
    brake: float
    left: float
    work: float

    @property
    def size(self) -> float:
        """Of pull and brake together."""
        return self.pull + self.brake


@dataclass(frozen=True, kw_only=True)
class GradientWords:
    """All words of a system's gradients at its present weights.

    Attributes:
        terms: The words; those of a weight add up to its gradient.
        weights: The weights, by name.
        zero_levels: By part that counts, the loss of predicting 0, less what the other parts have of it.
        is_opposed: Whether the pulls of two parts oppose each other so that no step along both leads to the solution.
        legend: What the letters mean, in one line.
        is_product: Whether each word is a product of all weights, so that one that is small starves the others.
        maps: The attention; empty where it is not known.
    """

    terms: Sequence[Term]
    weights: Mapping[str, Tensor]
    zero_levels: Mapping[str, float]
    is_opposed: bool
    legend: str
    is_product: bool = True
    maps: Sequence[AttentionMap] = ()

    def gradient(self, weight: str) -> Tensor:
        """The sum of a weight's words."""
        return torch.stack([term.value for term in self.terms if term.weight == weight]).sum(0)

    def balances(self) -> list[Balance]:
        """One for each weight and part that counts, in the order of the terms."""
        keys = dict.fromkeys((term.weight, term.part) for term in self.terms if term.part in self.zero_levels)
        return [self._balance(weight, part) for weight, part in keys]

    def growth(self) -> float:
        """Minus the gradient's product with the weights: above 0 if a step downhill makes their norms grow."""
        return -sum(float((self.gradient(name) * value).sum()) for name, value in self.weights.items())

    def starved_parts(self) -> list[str]:
        """Parts in which words are small: those of one weight if words are products of all weights; else those of all,
        by their work."""
        return [part for part in self.zero_levels if self._fed(part) < _STARVED]

    def left(self, part: str) -> float:
        """The share that is left of a part's words: the largest of a weight if words are products of all, else that of
        all weights together. NaN if a weight is not finite."""
        of = self._of(part)
        if self.is_product:
            return max(of, key=lambda each: (math.isnan(each.left), each.left)).left
        total = sum(each.size for each in of)
        return sum(each.left * each.size for each in of) / total if total else 1.0

    def state(self) -> str:
        """`starved`, `balanced in P, starved in I - P` and alike, `balanced`, `bound`, `bound with growing norms`, or
        `moving`; `undivided` where pull and brake are not known. The level of the loss plays no part in it."""
        if not self.zero_levels:
            return "undivided"
        starved = self.starved_parts()
        fed = [part for part in self.zero_levels if part not in starved]
        if not fed:
            return "starved"
        # Written with `not`, so that NaN is moving.
        if not all(self.left(part) < _BALANCED for part in fed):
            return "moving"
        if starved:
            return f"balanced in {', '.join(fed)}, starved in {', '.join(starved)}"
        if not self.is_opposed:
            return "balanced"
        return "bound with growing norms" if self.growth() > 0 else "bound"

    def _fed(self, part: str) -> float:
        if self.is_product:
            return min(each.size for each in self._of(part))
        return max(each.work for each in self._of(part))

    def _of(self, part: str) -> list[Balance]:
        return [each for each in self.balances() if each.part == part]

    def _balance(self, weight: str, part: str) -> Balance:
        mine = [term for term in self.terms if (term.weight, term.part) == (weight, part)]
        of = self.weights[weight]
        per_level = 1 / max(self.zero_levels[part], torch.finfo(torch.float64).tiny)
        scale = float(of.norm()) * per_level
        kinds = [[term.value for term in mine if term.kind == kind] for kind in ("pull", "brake")]
        pull, brake = (sum(float(value.norm()) for value in values) for values in kinds)
        work = sum(abs(sum(float((value * of).sum()) for value in values)) for values in kinds) * per_level
        both = pull + brake
        left = float(torch.stack([term.value for term in mine]).sum(0).norm()) / both if both else 1.0
        return Balance(weight=weight, part=part, pull=pull * scale, brake=brake * scale, left=left, work=work)
