"""The words of a model's weights, by a walk down its expression.

In tr(C^t A dX B), the trace may be rotated: tr(B C^t A dX), so X's gradient is A^t C B^t. The walk carries the
gradient C by the present expression, and at each letter it has become that letter's word.
"""

from collections.abc import Iterator
from dataclasses import dataclass

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
    product,
    transposed,
)


@dataclass(frozen=True, slots=True)
class Word:
    """One term of the gradient by a letter, from one of its occurrences."""

    letter: str
    expression: Expression


def words_of(model: Expression, by_output: Expression) -> Iterator[Word]:
    """The words of all letters, one for each occurrence. The words of a letter add up to its gradient.

    Args:
        model: The model's output.
        by_output: The gradient of the loss by that output. For |Y - model|^2/2 it is -E with E = Y - model; all words
            are linear in it.
    """
    match model:
        case Letter(name):
            yield Word(name, by_output)
        case Transposed(inner):
            yield from words_of(inner, transposed(by_output))
        case Sum(terms):
            for term in terms:
                yield from words_of(term, by_output)
        case Product(factors):
            for place, factor in enumerate(factors):
                before, after = _turned(factors[:place]), _turned(factors[place + 1 :])
                yield from words_of(factor, product(*before, by_output, *after))
        case Softmax(inner):
            yield from words_of(inner, SoftmaxBack(inner, by_output))
        case Rectified(inner):
            yield from words_of(inner, RectifiedBack(inner, by_output))
        case SoftmaxBack() | RectifiedBack():
            raise TypeError("a word has no words: the walk takes a model of products, sums, softmax and ReLU")


def _turned(factors: tuple[Expression, ...]) -> list[Expression]:
    return [transposed(factor) for factor in reversed(factors)]
