"""Attention weights of a training, averaged over its batch. Axes: Q query, T key, H head."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionMap:
    """The attention weights of one head.

    Attributes:
        name: The head's name, such as `attention 1, head 2`.
        weights_QT: The weights, averaged over the batch.
        evenness: The mean entropy of a query's weights divided by the largest possible entropy: 1 is uniform. `None` if
            the weights do not come from a softmax.
        entering: The size of the gradient with respect to the logits, pull plus brake, by part of the target; for all
            heads of the layer together.
    """

    name: str
    weights_QT: Tensor
    evenness: float | None
    entering: Mapping[str, float] = field(default_factory=dict)


def attention_maps(
    weights: Sequence[Tensor], axes: Sequence[Any], entering: Mapping[tuple[int, str], float]
) -> list[AttentionMap]:
    """Returns the attention weights of all heads, from all attention softmaxes of a traced program.

    Args:
        weights: The results of the softmaxes, of any shape.
        axes: The axes over which the softmaxes normalize: the keys. Of the other axes the last one is the queries, the
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
    """Computes how evenly each query attends (..., Q): its weights' entropy over the logarithm of the number of
    keys.
    """
    entropy = -torch.xlogy(weights, weights).sum(-1)
    n_seen = (weights > 0).sum(-1).clamp(min=1)
    return torch.where(n_seen > 1, entropy / n_seen.clamp(min=2).log(), torch.ones_like(entropy)).clamp(max=1.0)
