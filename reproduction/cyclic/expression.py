"""Expressions of matrices: letters, transposes, products, sums, row softmax a(.) and ReLU m(.), as trees.

Source of the notation: an anonymous note, "Cyclic 4-tensor rotations underly the training of a GPT-style encoder".
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Letter:
    """A matrix, by name: a weight, the input, or a constant."""

    name: str


@dataclass(frozen=True, slots=True)
class Transposed:
    """The transpose of an expression. `transposed` makes it."""

    of: "Expression"


@dataclass(frozen=True, slots=True)
class Product:
    """The product of matrices, from left to right. `product` makes it."""

    factors: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of matrices of one shape."""

    terms: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Softmax:
    """a(Z): the softmax of each row of Z."""

    of: "Expression"


@dataclass(frozen=True, slots=True)
class Rectified:
    """m(Z): the entries of Z, with 0 for those below 0."""

    of: "Expression"


@dataclass(frozen=True, slots=True)
class SoftmaxBack:
    """aa(Z, G): the gradient by Z where G is the gradient by a(Z): R * (G - rowsum(R * G)) with R = a(Z)."""

    at: "Expression"
    word: "Expression"


@dataclass(frozen=True, slots=True)
class RectifiedBack:
    """mm(Z, G): the gradient by Z where G is the gradient by m(Z): the entries of G where Z is above 0."""

    at: "Expression"
    word: "Expression"


Expression = Letter | Transposed | Product | Sum | Softmax | Rectified | SoftmaxBack | RectifiedBack


def product(*factors: Expression) -> Expression:
    """The product; factors that are products themselves are taken apart."""
    flat: list[Expression] = []
    for factor in factors:
        flat += factor.factors if isinstance(factor, Product) else (factor,)
    return flat[0] if len(flat) == 1 else Product(tuple(flat))


def transposed(of: Expression) -> Expression:
    """The transpose; that of a transpose is the expression itself."""
    return of.of if isinstance(of, Transposed) else Transposed(of)


def text_of(expression: Expression, names: Mapping[Expression, str] | None = None) -> str:
    """The expression as a word: `X' E V' X' X K`, where ' transposes.

    Args:
        expression: Any.
        names: Abbreviations of some expressions in it.
    """
    names = names or {}
    if expression in names:
        return names[expression]
    match expression:
        case Letter(name):
            return name
        case Transposed(Product(factors)):
            return text_of(Product(tuple(transposed(each) for each in reversed(factors))), names)
        case Transposed(Sum() as inner):
            return text_of(inner, names) + "'" if inner in names else f"({text_of(inner, names)})'"
        case Transposed(inner):
            return text_of(inner, names) + "'"
        case Product(factors):
            return " ".join(_in_product(each, names) for each in factors)
        case Sum(terms):
            return " + ".join(text_of(each, names) for each in terms)
        case Softmax(inner):
            return f"a({text_of(inner, names)})"
        case Rectified(inner):
            return f"m({text_of(inner, names)})"
        case SoftmaxBack(at, word):
            return f"aa({text_of(at, names)}, {text_of(word, names)})"
        case RectifiedBack(at, word):
            return f"mm({text_of(at, names)}, {text_of(word, names)})"


def _in_product(factor: Expression, names: Mapping[Expression, str]) -> str:
    text = text_of(factor, names)
    return f"({text})" if isinstance(factor, Sum) and factor not in names else text
