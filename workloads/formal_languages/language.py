"""The interface of a formal language: which strings belong to it, and how positions are encoded.

Axes: N position in a string, P position feature.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor


class Language(ABC):
    """A formal language: a set of bit strings. The symbols are 0, 1 and CLS, which precedes the string at position 0.

    Implementers: both methods are pure, treat each string independently, and are vectorized over leading axes.

    Attributes:
        name: The value of the parameter `language`.
        summary: The condition of membership, in a few words.
        n_position_features: P, the number of features that encode a position.
        n_marked_positions: The number of positions at the start of the string that have their own features, if all
            later positions share the same features. Symbols at later positions then differ only in being 0 or 1, so
            there are few kinds of tokens. `None` if the features of all positions differ.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    n_position_features: ClassVar[int]
    n_marked_positions: ClassVar[int | None]

    @abstractmethod
    def contains(self, text: Tensor, length: Tensor) -> Tensor:
        """Returns whether each string belongs to the language, (...) bool.

        Args:
            text: (..., N) bool, true for 1; false from position `length` on.
            length: (...) int64, the strings' lengths, at most N.
        """

    @abstractmethod
    def position_features(self, position: Tensor, n_positions: Tensor) -> Tensor:
        """Returns the numbers that encode each position, (..., P) float64. CLS is at 0, the string at 1..n-1.

        Args:
            position: (...) int64.
            n_positions: (...) int64, n: the length of the string plus 1 for CLS.
        """

    def odds_given_ones(self, n_ones: Tensor, length: Tensor) -> Tensor | None:
        """Returns which fraction of all strings with a given length and number of 1s belongs to the language, (...).

        The reference level `count` is computed from it. `None` if the number of 1s decides membership, or if the share
        is not known.

        Args:
            n_ones, length: (...) int64, the number of 1s and the length of each string.
        """
        del n_ones, length
        return None
