"""The languages that the parameter `language` can name."""

import torch
from torch import Tensor

from attnsweep.workloads.formal_languages.language import Language


class First(Language):
    """A token's only position feature is whether it is the first of the string. Source: Chiang & Cholak 2022, section 2
    and figure 4."""

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


class Parity(Language):
    """Position i of n has the features i/n and cos(i pi). Source: Chiang & Cholak 2022, section 3.1."""

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


_LANGUAGES: tuple[Language, ...] = (First(), Parity())

LANGUAGES: dict[str, Language] = {language.name: language for language in _LANGUAGES}
