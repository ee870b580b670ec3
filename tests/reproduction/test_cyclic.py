"""Words add up to the gradient that autograd computes, and there are as many as the formulas say."""

import math
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest
import torch
from rich.console import Console
from torch import Tensor

from attnsweep.reproduction.cyclic import note
from attnsweep.reproduction.cyclic.words import (
    Evaluation,
    Expression,
    Letter,
    Softmax,
    Sum,
    level,
    product,
    text_of,
    transposed,
    words_of,
)

Attention = Literal["linear", "softmax", "encoder"]
N, D = 5, 4
CASES: list[tuple[int, Attention, bool]] = [
    (1, "linear", False),
    (1, "encoder", False),
    (2, "linear", False),
    (2, "encoder", False),
    (2, "encoder", True),
    (3, "softmax", False),
    (3, "softmax", True),
]


def model(n_levels: int, attention: Attention, has_skip: bool) -> Expression:
    output: Expression = Letter("X")
    for number in range(1, n_levels + 1):
        output = level(output, number, attention, has_skip=has_skip)
    return output


def letters(n_levels: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64) / 2

    drawn = {"X": random(N, D), "Y": random(N, D)}
    for number in range(1, n_levels + 1):
        drawn |= {f"{name}{number}": random(D, D) for name in "QKVW"}
        drawn |= {f"{name}{number}": random(1, D) for name in "bc"}
    one = torch.ones(N, 1, dtype=torch.float64)
    return drawn | {"s": torch.eye(N, dtype=torch.float64) / math.sqrt(N), "C": one}


@pytest.mark.parametrize(("n_levels", "attention", "has_skip"), CASES)
def test_words_add_up_to_autograds_gradient(n_levels: int, attention: Attention, has_skip: bool) -> None:
    output, values = model(n_levels, attention, has_skip), letters(n_levels)
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    error = leaves["Y"] - Evaluation(leaves)(output)
    (error.square().sum() / 2).backward()
    evaluate = Evaluation(values | {"E": error.detach()})
    sums: dict[str, Tensor] = {}
    for word in words_of(output, Letter("E")):
        sums[word.letter] = sums.get(word.letter, torch.zeros(())) - evaluate(word.expression)
    gradients = {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None and name[-1].isdigit()}
    assert len(gradients) == n_levels * (6 if attention == "encoder" else 3)
    size = max(1.0, *(float(value.abs().max()) for value in gradients.values()))
    for name, gradient in gradients.items():
        torch.testing.assert_close(sums[name], gradient, rtol=0, atol=1e-14 * size)


@pytest.mark.parametrize(("has_skip", "base"), [(False, 3), (True, 4)])
def test_each_level_multiplies_the_words_of_the_levels_below(has_skip: bool, base: int) -> None:
    for n_levels in (1, 2, 3):
        counts = Counter(word.letter for word in words_of(model(n_levels, "softmax", has_skip), Letter("E")))
        for number in range(1, n_levels + 1):
            expected = base ** (n_levels - number)
            assert [counts[f"{name}{number}"] for name in "QKV"] == [expected] * 3


def test_one_encoders_words_read_as_derived() -> None:
    s, X, Q, K, V, b, C = map(Letter, ("s", "X", "Q1", "K1", "V1", "b1", "C"))
    logits = product(s, X, Q, transposed(K), transposed(X))
    names = {logits: "Z", Sum((product(Softmax(logits), X, V), product(C, b))): "H"}
    words = words_of(model(1, "encoder", False), Letter("E"))
    written = {word.letter[0]: text_of(word.expression, names).replace("1", "") for word in words if "1" in word.letter}
    assert written == {
        "Q": "X' s' aa(Z, mm(H, E W') V' X') X K",
        "K": "X' aa(Z, mm(H, E W') V' X')' s X Q",
        "V": "X' a(Z)' mm(H, E W')",
        "W": "m(H)' E",
        "b": "C' mm(H, E W')",
        "c": "C' E",
    }


def test_a_sum_in_a_word_stands_in_brackets() -> None:
    A, B, C = map(Letter, "ABC")
    assert text_of(product(transposed(product(A, Sum((B, C)))), B)) == "(B + C)' A' B"
    names: dict[Expression, str] = {Sum((B, C)): "D"}
    assert text_of(product(A, transposed(Sum((B, C)))), names) == "A D'"


MISPRINTS = {"the same as matrices differ by", "the same as printed, by sum e^x", "the same as printed, with B E' A"}


def test_words_and_counts_agree_and_what_is_misprinted_differs(tmp_path: Path) -> None:
    found = note.reproduce(tmp_path, Console(quiet=True))
    assert {row.name for row in found.rows if row.agrees is False} == MISPRINTS
    assert all(float(row.ours) > 0.1 for row in found.rows if row.name in MISPRINTS)
    encoder = dict(found.tables)["The words of one encoder, E = Y - F; Z = s X Q K' X', H = a(Z) X V + C b"]
    assert [row[:2] for row in encoder if row[0] in "QW"] == [
        ["Q", "-X' s' aa(Z, mm(H, E W') V' X') X K"],
        ["W", "-m(H)' E"],
    ]


def test_the_corrected_rules_hold() -> None:
    assert note.swapped_rectifier()[0] < 1e-14
    assert note.softmax_denominator()[0] < 1e-14
    assert note.softmax_substitution()[0] < 1e-14
