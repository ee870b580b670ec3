"""PARITY: the strings with an odd number of 1s."""

import torch
from torch import Tensor

from attnsweep.workloads.formal_languages.language import Language


class Parity(Language):
    """PARITY. Two position features: i/n and cos(i pi), for position i of n.

    Source: Chiang & Cholak 2022, section 3.1.
    """

    name = "parity"
    summary = "has an odd number of 1s"
    n_position_features = 2
    n_marked_positions = None

    def contains(self, text: Tensor, length: Tensor) -> Tensor:
        del length
        return text.sum(-1) % 2 == 1

    def position_features(self, position: Tensor, n_positions: Tensor) -> Tensor:
        alternating = 1.0 - 2.0 * (position % 2).to(torch.float64)
        return torch.stack([position / n_positions.to(torch.float64), alternating], dim=-1)
