"""The numbers of expressions and words."""

from collections.abc import Mapping

import torch
from torch import Tensor

from attnsweep.reproduction.cyclic.expression import (
    Expression,
    Letter,
    Product,
    Rectified,
    RectifiedBack,
    Softmax,
    SoftmaxBack,
    Sum,
    Transposed,
)


class Evaluation:
    """Values of expressions, where letters have given values. What occurs twice is computed once, prefixes too.

    Attributes:
        n_products: Products of two matrices that were computed.
    """

    def __init__(self, letters: Mapping[str, Tensor]) -> None:
        self.n_products = 0
        self._letters = letters
        self._known: dict[Expression, Tensor] = {}

    def __call__(self, expression: Expression) -> Tensor:
        """The value of an expression, a matrix.

        Raises:
            KeyError: For a letter without a value.
        """
        if (known := self._known.get(expression)) is not None:
            return known
        value = self._known[expression] = self._computed(expression)
        return value

    def _computed(self, expression: Expression) -> Tensor:
        match expression:
            case Letter(name):
                return self._letters[name]
            case Transposed(inner):
                return self(inner).mT
            case Product((only,)):
                return self(only)
            case Product((*first, last)):
                prefix = self(Product(tuple(first)))
                self.n_products += 1
                return prefix @ self(last)
            case Sum((first_term, *terms)):
                total = self(first_term)
                for term in terms:
                    total = total + self(term)
                return total
            case Softmax(inner):
                return torch.softmax(self(inner), -1)
            case Rectified(inner):
                return self(inner).clamp(min=0.0)
            case SoftmaxBack(at, word):
                weights, by_weights = self(Softmax(at)), self(word)
                return weights * (by_weights - (weights * by_weights).sum(-1, keepdim=True))
            case RectifiedBack(at, word):
                return self(word) * (self(at) > 0)
        raise TypeError("an empty product or sum has no value")
