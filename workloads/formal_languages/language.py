"""What a formal language is to a training: which strings belong to it, and what an encoder is told of positions.

Axes: N position in a string, P position feature.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor


class Language(ABC):
    """A set of bit strings. Symbols are 0, 1 and CLS, which is put before the string at position 0.

    Implementers: both methods are pure, look at one string at a time, and are vectorized over leading axes.

    Attributes:
        name: What the parameter `language` calls it.
        summary: Membership in a few words.
        n_position_features: P, how many numbers tell an encoder where a symbol stands.
        n_marked_positions: Where all positions above this one have the same features, how many do not: symbols there
            are alike but for being 0 or 1, so that tokens collapse into few kinds. `None` where positions differ
            without end.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    n_position_features: ClassVar[int]
    n_marked_positions: ClassVar[int | None]

    @abstractmethod
    def contains(self, text: Tensor, length: Tensor) -> Tensor:
        """(...) bool, whether strings belong to the language.

        Args:
            text: (..., N) bool, true for 1; false from position `length` on.
            length: (...) int64, the strings' lengths, at most N.
        """

    @abstractmethod
    def position_features(self, position: Tensor, n_positions: Tensor) -> Tensor:
        """(..., P) float64 features of positions; CLS stands at 0, the string at 1..n-1.

        Args:
            position: (...) int64.
            n_positions: (...) int64, n: the length of the string and 1 for CLS.
        """

    def odds_given_ones(self, n_ones: Tensor, length: Tensor) -> Tensor | None:
        """The share of a language among all strings with these numbers of 1s, for the reference level `count`; `None`
        where a count of 1s tells all, or where that share is not known.

        Args:
            n_ones, length: (...) int64.
        """
        del n_ones, length
        return None
