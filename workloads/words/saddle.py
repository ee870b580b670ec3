"""Finds the direction in weight space along which a training's loss curves downwards most: the way out of a saddle
point.
"""

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
"""The size of the step along the direction by which terms of the gradient are differentiated, relative to the norm of
all weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Saddle:
    """The direction in weight space along which the loss has its smallest curvature, at a training's weights.

    Attributes:
        curvature: The second derivative of the loss along this direction, for a step of norm 1.
        is_negative: Whether `curvature` is below 0 by more than its error.
        weights: How much of the direction belongs to each weight, by name; the shares add up to 1.
        parts: The contributions to `curvature` by part of the target (such as its mean): those of the gradient's terms
            that belong to the part.
    """

    curvature: float
    is_negative: bool
    weights: Mapping[str, float]
    parts: Mapping[str, float]

    def steps(self, learning_rate: float) -> float:
        """Returns the number of gradient descent steps in which a displacement along the direction of smallest
        curvature grows by the factor e (2.72).

        The curvature must be negative.
        """
        return 1 / (learning_rate * -self.curvature)


def saddle_of(training: Training[Any], module: nn.Module, batch: Batch, loss: Loss, words: Words) -> Saddle | None:
    """Computes the direction in weight space along which the loss curves downwards most, by the Lanczos method; `None`
    if the loss has no second derivatives.

    Args:
        training: The training; its seed draws the first direction.
        module: The module with the training's weights and buffers, in float64.
        batch: The data.
        loss: The loss, a function of module and batch.
        words: Computes the words (terms) of the gradients at a module's weights.
    """
    state = {name: value.detach().unsqueeze(0) for name, value in module.named_parameters()}
    buffers = {name: value.unsqueeze(0) for name, value in module.named_buffers()}
    data = {name: value.unsqueeze(0) for name, value in batch.items()}
    objective = Objective(module, loss, buffers, data)
    try:
        # The MATH backend is used, because PyTorch's fused attention has no second derivatives.
        with sdpa_kernel(SDPBackend.MATH):
            curvatures = smallest_curvature(objective, state, Lanes([training], torch.device("cpu")).streams)
    except RuntimeError:
        # A user's loss may contain an operation without a second derivative. Then only the saddle (the direction of the
        # smallest curvature) is left out, because all other results need no second derivatives.
        return None
    direction = {name: value[0] for name, value in curvatures.direction.items()}
    return Saddle(
        curvature=float(curvatures.smallest[0]),
        is_negative=bool(curvatures.is_negative()[0]),
        weights={name: float(value.square().sum()) for name, value in direction.items()},
        parts=_parts(module, words, direction),
    )


def _parts(module: nn.Module, words: Words, direction: Mapping[str, Tensor]) -> dict[str, float]:
    """Computes how much each part of the target (such as its mean) contributes to the curvature of the loss along a
    direction in weight space.

    The contribution is the change, along the direction, of the gradient's terms that belong to the part.
    """
    length = _SHIFT * float(torch.stack([value.detach().norm() for value in module.parameters()]).norm())
    change_by_part: dict[str, float] = {}
    for sign in (1, -1):
        shifted = copy.deepcopy(module)
        with torch.no_grad():
            for name, value in shifted.named_parameters():
                value.add_(direction[name], alpha=sign * length)
        shifted_words = words(shifted)
        for term in shifted_words.terms:
            if term.part in shifted_words.zero_levels:
                projection = float((term.value * direction[term.weight]).sum())
                change_by_part[term.part] = change_by_part.get(term.part, 0.0) + sign * projection / (2 * length)
    return change_by_part
