"""Gradients as sums of matrix products ("words"). Each matrix has a letter, and each occurrence of a weight in the
model gives one product.

Expressions of matrices are trees of letters, transposes, products, sums, row softmax a(.) and ReLU m(.). For constant
matrices A, B and G, tr(G^t A dX B) may be rotated to tr(B G^t A dX), so the gradient with respect to X is A^t G B^t. A
walk from a model's expression down to its letters multiplies the output gradient G by each part on the way; the product
that arrives at a letter is its word.

Source of the notation: an anonymous note, "Cyclic 4-tensor rotations underly the training of a GPT-style encoder".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Letter:
    """A matrix: a weight, the input, or a constant."""

    name: str


@dataclass(frozen=True, slots=True)
class Transposed:
    """Built by `transposed`."""

    of: "Expression"


@dataclass(frozen=True, slots=True)
class Product:
    """Built by `product`."""

    factors: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """Of matrices of one shape."""

    terms: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Softmax:
    """Of rows, written a(Z)."""

    of: "Expression"


@dataclass(frozen=True, slots=True)
class Rectified:
    """ReLU, written m(Z)."""

    of: "Expression"


@dataclass(frozen=True, slots=True)
class SoftmaxBack:
    """Backward pass of the row softmax, aa(Z, G): with R = a(Z), R * (G - rowsum(R * G)), * entry by entry."""

    at: "Expression"
    gradient: "Expression"


@dataclass(frozen=True, slots=True)
class RectifiedBack:
    """Backward pass of ReLU, mm(Z, G): the entries of G where Z is above 0."""

    at: "Expression"
    gradient: "Expression"


Expression = Letter | Transposed | Product | Sum | Softmax | Rectified | SoftmaxBack | RectifiedBack


def product(*factors: Expression) -> Expression:
    """One flat list of factors."""
    flat: list[Expression] = []
    for factor in factors:
        flat += factor.factors if isinstance(factor, Product) else (factor,)
    return flat[0] if len(flat) == 1 else Product(tuple(flat))


def transposed(of: Expression) -> Expression:
    """The transpose of a transpose is the expression itself."""
    return of.of if isinstance(of, Transposed) else Transposed(of)


def written(expression: Expression, names: Mapping[Expression, str] | None = None) -> str:
    """Such as `X' E V' X' X K`, where ' transposes; `names` abbreviates parts."""
    names = names or {}
    if expression in names:
        return names[expression]
    match expression:
        case Letter(name):
            return name
        case Transposed(Product(factors)):
            return written(Product(tuple(transposed(factor) for factor in reversed(factors))), names)
        case Transposed(Sum() as inner):
            return written(inner, names) + "'" if inner in names else f"({written(inner, names)})'"
        case Transposed(inner):
            return written(inner, names) + "'"
        case Product(factors):
            return " ".join(_in_product(factor, names) for factor in factors)
        case Sum(terms):
            return " + ".join(written(term, names) for term in terms)
        case Softmax(inner):
            return f"a({written(inner, names)})"
        case Rectified(inner):
            return f"m({written(inner, names)})"
        case SoftmaxBack(at, gradient):
            return f"aa({written(at, names)}, {written(gradient, names)})"
        case RectifiedBack(at, gradient):
            return f"mm({written(at, names)}, {written(gradient, names)})"


def _in_product(factor: Expression, names: Mapping[Expression, str]) -> str:
    text = written(factor, names)
    return f"({text})" if isinstance(factor, Sum) and factor not in names else text


@dataclass(frozen=True, slots=True)
class Word:
    """One term of the gradient with respect to a matrix, of one place where it occurs."""

    letter: str
    expression: Expression


def words_of(model: Expression, by_output: Expression) -> Iterator[Word]:
    """A word for each place in the model's output where a letter occurs. Those of one letter add up to its gradient.

    Args:
        by_output: The gradient of the loss with respect to the output. For |Y - model|^2/2 it is -E with E = Y - model;
            all words are linear in it.
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
            raise TypeError(
                "got the gradient of a softmax or ReLU, expected letters (named matrices), transposes, products, sums,"
                " softmax and ReLU"
            )


def _turned(factors: tuple[Expression, ...]) -> list[Expression]:
    return [transposed(factor) for factor in reversed(factors)]


class Evaluation:
    """Computes expressions, given the matrices of their letters, and a repeated part once. `n_products` counts products
    of two matrices."""

    def __init__(self, letters: Mapping[str, Tensor]) -> None:
        self.n_products = 0
        self._letters = letters
        self._known: dict[Expression, Tensor] = {}

    def __call__(self, expression: Expression) -> Tensor:
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
            case SoftmaxBack(at, gradient):
                weights, by_weights = self(Softmax(at)), self(gradient)
                return weights * (by_weights - (weights * by_weights).sum(-1, keepdim=True))
            case RectifiedBack(at, gradient):
                return self(gradient) * (self(at) > 0)
        raise TypeError("got an empty product or sum, expected at least one factor or term")


Attention = Literal["linear", "softmax", "encoder"]


def layer(below: Expression, number: int, attention: Attention, *, has_skip: bool = False) -> Expression:
    """The output of one encoder layer, whose weights' names end with its number, from 1: `Q1`, `K1`, ...

    Args:
        below: What the layer reads.
        attention: What it computes from this X, where a is the softmax of rows and ' transposes. `linear`: X Q K' X' X
            V. `softmax`: a(X Q K' X') X V. `encoder`: with a scale s, ReLU m, a column C of ones and biases b and c,
            m(a(s X Q K' X') X V + C b) W + C c.
        has_skip: Whether to add the layer's input.
    """
    Q, K, V, W, b, c = (Letter(f"{name}{number}") for name in "QKVWbc")
    s, C = Letter("s"), Letter("C")
    logits = product(below, Q, transposed(K), transposed(below))
    match attention:
        case "linear":
            output = product(logits, below, V)
        case "softmax":
            output = product(Softmax(logits), below, V)
        case "encoder":
            read = product(Softmax(product(s, logits)), below, V)
            hidden = Sum((read, product(C, b)))
            output = Sum((product(Rectified(hidden), W), product(C, c)))
    return Sum((below, output)) if has_skip else output
