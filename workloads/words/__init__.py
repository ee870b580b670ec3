"""Gradients as sums of readable words: products of the letters of a model, one word per occurrence of a weight.

For a model of matrices, sums, row softmax and ReLU, `words_of` walks down its expression and returns the words of each
weight (docs/why.md). Needs torch alone.
"""

from attnsweep.workloads.words.encoder import level
from attnsweep.workloads.words.evaluation import Evaluation
from attnsweep.workloads.words.expression import (
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
    text_of,
    transposed,
)
from attnsweep.workloads.words.terms import Balance, GradientWords, Term
from attnsweep.workloads.words.walk import Word, words_of

__all__ = (
    "Balance",
    "Evaluation",
    "Expression",
    "GradientWords",
    "Letter",
    "Product",
    "Rectified",
    "RectifiedBack",
    "Softmax",
    "SoftmaxBack",
    "Sum",
    "Term",
    "Transposed",
    "Word",
    "level",
    "product",
    "text_of",
    "transposed",
    "words_of",
)
