"""The direction in which the loss curves down most where a training stands: the way out of a saddle."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnsweep.workloads.diagnostics.negative_curvature import smallest_curvature
from attnsweep.workloads.diagnostics.objective import Objective
from attnsweep.workloads.engine.contract import Batch, Lanes, Training
from attnsweep.workloads.words.terms import GradientWords

Loss = Callable[[nn.Module, Batch], Tensor]
Words = Callable[[nn.Module], GradientWords]

_SHIFT = 1e-4
"""Of all weights' norm, along the direction and back, to see what curves down."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Saddle:
    """The direction in which the loss curves down most, or up least.

    Attributes:
        curvature: The second derivative of the loss along it, for a step of norm 1.
        is_negative: Whether `curvature` is below 0 by more than its error.
        weights: The share of each weight in the direction; they add up to 1.
        parts: What the words of each part that counts contribute to `curvature`.
    """

    curvature: float
    is_negative: bool
    weights: Mapping[str, float]
    parts: Mapping[str, float]

    def steps(self, learning_rate: float) -> float:
        """The steps of plain gradient descent in which a deviation in this direction grows e-fold, if the curvature is
        negative."""
        return 1 / (learning_rate * -self.curvature)


def saddle_of(training: Training[Any], module: nn.Module, batch: Batch, loss: Loss, words: Words) -> Saddle | None:
    """The smallest curvature of the loss, by Lanczos; `None` if the loss has no second derivatives.

    Args:
        training: Its seed draws the first direction.
        module: With its weights and buffers, in float64.
        batch: Its data.
        loss: The loss, of a module and data.
        words: The words of the gradients at a module's weights.
    """
    state = {name: value.detach().unsqueeze(0) for name, value in module.named_parameters()}
    buffers = {name: value.unsqueeze(0) for name, value in module.named_buffers()}
    data = {name: value.unsqueeze(0) for name, value in batch.items()}
    objective = Objective(module, loss, buffers, data)
    try:
        # The attention that PyTorch fuses has no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            found = smallest_curvature(objective, state, Lanes([training], torch.device("cpu")).streams)
    except RuntimeError:
        # An operation of a user's loss may have a first derivative only; the rest of a page does not need a second.
        return None
    direction = {name: value[0] for name, value in found.direction.items()}
    return Saddle(
        curvature=float(found.smallest[0]),
        is_negative=bool(found.is_negative()[0]),
        weights={name: float(value.square().sum()) for name, value in direction.items()},
        parts=_parts(module, words, direction),
    )


def _parts(module: nn.Module, words: Words, direction: Mapping[str, Tensor]) -> dict[str, float]:
    """By part, the change of its words along a direction."""
    length = _SHIFT * float(torch.stack([value.detach().norm() for value in module.parameters()]).norm())
    found: dict[str, float] = {}
    for sign in (1, -1):
        shifted = copy.deepcopy(module)
        with torch.no_grad():
            for name, value in shifted.named_parameters():
                value.add_(direction[name], alpha=sign * length)
        found_there = words(shifted)
        for term in found_there.terms:
            if term.part in found_there.zero_levels:
                along = float((term.value * direction[term.weight]).sum())
                found[term.part] = found.get(term.part, 0.0) + sign * along / (2 * length)
    return found
