"""The attention of a training where it stands: weights averaged over its batch. Axes: Q query, T key, H map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionMap:
    """The weights of one head.

    Attributes:
        name: Such as `attention 1, head 2`.
        weights_QT: Averaged over the batch.
        evenness: The mean entropy of a query's weights over the largest that it could have: 1 is uniform. `None` where
            weights come from no softmax.
        entering: By part, the sizes of the gradients by its logits, pull and brake; of all heads of the layer together.
    """

    name: str
    weights_QT: Tensor
    evenness: float | None
    entering: Mapping[str, float] = field(default_factory=dict)


def attention_maps(
    weights: Sequence[Tensor], axes: Sequence[Any], entering: Mapping[tuple[int, str], float]
) -> list[AttentionMap]:
    """The maps of all attention of a program.

    Args:
        weights: The results of each softmax, of any shape.
        axes: The axis of each over which they sum to 1: the keys'. Of the others the last are the queries, the first is
            the batch, and those between are heads.
        entering: Sizes of the gradients by logits, by softmax and part.
    """
    found = []
    for at, (value, axis) in enumerate(zip(weights, axes, strict=True)):
        moved = value.detach().movedim(axis, -1)
        if moved.dim() < 2:
            continue
        by_head = moved.reshape(1, *moved.shape) if moved.dim() == 2 else moved
        heads = by_head.mean(0).reshape(-1, *by_head.shape[-2:])
        even = evenness(by_head).reshape(by_head.shape[0], heads.shape[0], -1).mean((0, 2))
        parts = {part: size for (number, part), size in entering.items() if number == at}
        for head, weights_QT in enumerate(heads):
            name = f"attention {at + 1}" + (f", head {head + 1}" if heads.shape[0] > 1 else "")
            found.append(
                AttentionMap(name=name, weights_QT=weights_QT, evenness=float(even[head]), entering=parts),
            )
    return found


def evenness(weights: Tensor) -> Tensor:
    """(..., Q) the entropy of each query's weights, over the logarithm of the number of keys that it sees."""
    entropy = -torch.xlogy(weights, weights).sum(-1)
    n_seen = (weights > 0).sum(-1).clamp(min=1)
    return torch.where(n_seen > 1, entropy / n_seen.clamp(min=2).log(), torch.ones_like(entropy)).clamp(max=1.0)
