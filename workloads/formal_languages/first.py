"""FIRST: the strings that start with 1."""

import torch
from torch import Tensor

from attnsweep.workloads.formal_languages.language import Language


class First(Language):
    """FIRST. One position feature: 1 at position 1, else 0.

    Source: Chiang & Cholak 2022, section 2 and figure 4.
    """

    name = "first"
    summary = "starts with 1"
    n_position_features = 1
    n_marked_positions = 1

    def contains(self, text: Tensor, length: Tensor) -> Tensor:
        del length
        return text[..., 0]

    def position_features(self, position: Tensor, n_positions: Tensor) -> Tensor:
        del n_positions
        return (position == 1).unsqueeze(-1).to(torch.float64)

    def odds_given_ones(self, n_ones: Tensor, length: Tensor) -> Tensor:
        return n_ones / length.to(torch.float64)
