"""The interface of a formal language, and the tokens into which its strings are turned.

Axes: T token (CLS first), F feature of a token (symbols, then position features), B string; leading axes are free.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


class Language(ABC):
    """A set of bit strings. The symbols are 0, 1 and CLS, which precedes the string at position 0.

    Implementers: the methods are pure, treat each string independently, and are vectorized over leading axes.

    Attributes:
        name: The value of the parameter `language`.
        n_marked_positions: How many positions at the start have features of their own, if all later ones share theirs:
            then there are few kinds of tokens. `None` if the features of all positions differ.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    n_position_features: ClassVar[int]
    n_marked_positions: ClassVar[int | None]

    @abstractmethod
    def contains(self, text: Tensor, length: Tensor) -> Tensor:
        """Whether each string belongs to the language.

        Args:
            text: (..., n_positions) bool, true for 1; false from position `length` on.
            length: (...) int64, at most n_positions.
        """

    @abstractmethod
    def position_features(self, position: Tensor, n_positions: Tensor) -> Tensor:
        """The input features of each position, (..., n_features) float64; position 0 is that of CLS.

        Args:
            position: (...) int64.
            n_positions: (...) int64, the length of the string plus 1 for CLS.
        """

    def odds_given_ones(self, n_ones: Tensor, length: Tensor) -> Tensor | None:
        """Of all strings of this length with this number of 1s, (...) int64, the share in the language, for the level
        `count`. `None` if that number decides membership, or the share is not known."""
        del n_ones, length
        return None


CLS = 2
N_SYMBOLS = 3
REPRESENTATIONS = ("kinds", "positions")
ABSENT = -1e30
"""The log-count of an absent token in place of log(0) = -inf: softmax gives it exactly the weight 0, with gradient 0,
and 0 times it is 0."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Strings of one length as tokens, each of which can stand for several identical symbols.

    Attributes:
        feature_BTF: Each token's symbol, one-hot, and its position features.
        log_count_BT: The logarithm of the number of symbols that it stands for; `ABSENT` for 0.
        log_n: (), the logarithm of the length plus 1 for CLS.
    """

    feature_BTF: Tensor
    log_count_BT: Tensor
    log_n: Tensor


def tokenize(language: Language, text: Tensor, length: Tensor, representation: str) -> Tokens:
    """In float64.

    Args:
        text: (..., n_positions) bool, false from position `length` on; with `positions` all have that length.
        representation: `positions`: a token for CLS and one for each position. `kinds`: one for CLS, for each marked
            position of the language, one for all further 0s, and one for all further 1s.
    """
    log_n = torch.log1p(length.to(torch.float64))
    split = _by_kind if representation == "kinds" else _by_position
    symbol, position, log_count = split(language, text, length)
    one_hot = torch.nn.functional.one_hot(symbol, N_SYMBOLS).to(torch.float64)
    features = language.position_features(position, (length + 1).unsqueeze(-1))
    return Tokens(torch.cat([one_hot, features], dim=-1), log_count, log_n)


def _by_position(language: Language, text: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    del language, length
    symbol = torch.nn.functional.pad(text.to(torch.int64), (1, 0), value=CLS)
    position = torch.arange(symbol.shape[-1], device=text.device).expand_as(symbol)
    return symbol, position, torch.zeros_like(symbol, dtype=torch.float64)


def count_ones(text: Tensor) -> Tensor:
    # Exact below 2^24, and five times as fast as a sum of bools.
    return text.to(torch.float32).sum(-1).to(torch.int64)


def _by_kind(language: Language, text: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    marked = language.n_marked_positions
    assert marked is not None
    n_ones = count_ones(text[..., marked:])
    n_zeros = (length - marked).clamp(min=0) - n_ones
    first = torch.nn.functional.pad(text[..., :marked].to(torch.int64), (1, max(0, marked - text.shape[-1])))
    first[..., 0] = CLS
    further = torch.arange(2, device=text.device).expand(*first.shape[:-1], 2)
    position = torch.arange(marked + 3, device=text.device).clamp(max=marked + 1)
    occurs = (position[: marked + 1] <= length.unsqueeze(-1)).to(torch.int64)
    count = torch.cat([occurs, n_zeros.unsqueeze(-1), n_ones.unsqueeze(-1)], dim=-1)
    log_count = torch.where(count > 0, count.clamp(min=1).to(torch.float64).log(), ABSENT)
    symbol = torch.cat([first, further], dim=-1)
    return symbol, position.expand_as(symbol), log_count
