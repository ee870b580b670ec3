"""The words of a system's gradients where it stands, and what they say about it: starved, balanced, bound or moving.

A word pulls if it contains the target, and brakes if it contains the prediction. Each belongs to one part of the
target, such as its mean P and the rest I - P. Thresholds: docs/why.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Part = Literal["I - P", "P"]

_STARVED = 0.8
"""In units of a part's own zero level. At a solution pull and brake are 2 or more each."""
_BALANCED = 0.35
"""What is left of a part's words, as a share, below which they balance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One word of the gradient by a weight.

    Attributes:
        weight: The weight's name.
        part: The part of the target that it is about.
        is_pull: Whether it contains the target, not the prediction.
        text: The word, to be read.
        value: Its numbers, in the weight's shape.
    """

    weight: str
    part: Part
    is_pull: bool
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
    """

    weight: str
    part: Part
    pull: float
    brake: float
    left: float

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
        zero_levels: By part, the loss of predicting 0, less what the other part has of it.
        is_opposed: Whether the pulls of two parts oppose each other so that no step along both leads to the solution.
        legend: What the letters mean, in one line.
    """

    terms: Sequence[Term]
    weights: Mapping[str, Tensor]
    zero_levels: Mapping[Part, float]
    is_opposed: bool
    legend: str

    def gradient(self, weight: str) -> Tensor:
        """The sum of a weight's words."""
        return torch.stack([term.value for term in self.terms if term.weight == weight]).sum(0)

    def balances(self) -> list[Balance]:
        """One for each weight and part, in the order of the terms."""
        keys = dict.fromkeys((term.weight, term.part) for term in self.terms)
        return [self._balance(weight, part) for weight, part in keys]

    def growth(self) -> float:
        """Minus the gradient's product with the weights: above 0 if a step downhill makes their norms grow."""
        return -sum(float((self.gradient(name) * value).sum()) for name, value in self.weights.items())

    def starved_parts(self) -> list[Part]:
        """Parts with a weight whose words are small."""
        return [part for part in self.zero_levels if min(each.size for each in self._of(part)) < _STARVED]

    def state(self) -> str:
        """`starved`, `balanced in P, starved in I - P`, `balanced in I - P, starved in P`, `balanced`, `bound`, `bound
        with growing norms`, or `moving`. The level of the loss plays no part in it."""
        starved = self.starved_parts()
        fed = [part for part in self.zero_levels if part not in starved]
        if not fed:
            return "starved"
        # Written with `not`, so that NaN is moving.
        if not all(each.left < _BALANCED for part in fed for each in self._of(part)):
            return "moving"
        if starved:
            return f"balanced in {fed[0]}, starved in {starved[0]}"
        if not self.is_opposed:
            return "balanced"
        return "bound with growing norms" if self.growth() > 0 else "bound"

    def _of(self, part: Part) -> list[Balance]:
        return [each for each in self.balances() if each.part == part]

    def _balance(self, weight: str, part: Part) -> Balance:
        mine = [term for term in self.terms if (term.weight, term.part) == (weight, part)]
        scale = float(self.weights[weight].norm()) / max(self.zero_levels[part], torch.finfo(torch.float64).tiny)
        pull, brake = (sum(float(term.value.norm()) for term in mine if term.is_pull == kind) for kind in (True, False))
        both = pull + brake
        left = float(torch.stack([term.value for term in mine]).sum(0).norm()) / both if both else 1.0
        return Balance(weight=weight, part=part, pull=pull * scale, brake=brake * scale, left=left)
