"""Checks with autograd the formulas of the note "Cyclic 4-tensor rotations underly the training of a GPT-style
encoder", which writes gradients as sums of matrix products ("words"), and measures its misprints.

Axes: n tokens, d channels.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from torch import Tensor

from attnsweep.reproduction.comparison import ComparedValue, Comparison, value_row
from attnsweep.reproduction.cyclic.words import (
    Evaluation,
    Expression,
    Letter,
    Softmax,
    SoftmaxBack,
    Sum,
    layer,
    product,
    transposed,
    words_of,
    written,
)

EXACT = 1e-14
"""The largest error that counts as equal, in units of the largest entry of the gradients."""
_TOKENS, _CHANNELS = 5, 4
Attention = Literal["linear", "softmax", "encoder"]


def reproduce(directory: Path, console: Console) -> Comparison:
    del directory
    console.print("words of encoders with up to three levels, beside autograd")
    return Comparison(
        title="cyclic-words: the gradient of an encoder as words",
        source="Cyclic 4-tensor rotations underly the training of a GPT-style encoder (anonymous note)",
        rows=[*_sums(), *_counts(), *_printed_rules()],
        tables=[
            ("The words of one encoder, E = Y - F; Z = s X Q K' X', H = a(Z) X V + C b", _encoder()),
            ("Where the note misprints", _misprints()),
        ],
        notes=[
            "The note has no experiment. It states one theorem, which holds, and its formulas are compared here.",
            "F = m(a(s X Q K' X') X V + C b) W + C c: a is the softmax of rows, m the ReLU, C a column of ones, "
            "s = 1/sqrt(n), and ' transposes. aa and mm are the derivatives of a and m.",
            '"Each weight matrix in each level only occurs in one of the terms" holds for one level. Below it, each '
            "level multiplies the words by 3, for it reads its input as query, key and value; by 4 with a skip.",
        ],
    )


def model(n_levels: int, attention: Attention, *, has_skip: bool) -> Expression:
    """The output of an encoder."""
    output: Expression = Letter("X")
    for number in range(1, n_levels + 1):
        output = layer(output, number, attention, has_skip=has_skip)
    return output


def _letters(n_levels: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    n, d = _TOKENS, _CHANNELS
    values = {"X": _drawn(draw, n, d), "Y": _drawn(draw, n, d)}
    for number in range(1, n_levels + 1):
        values |= {f"{name}{number}": _drawn(draw, d, d) for name in "QKVW"}
        values |= {f"{name}{number}": _drawn(draw, 1, d) for name in "bc"}
    eye = torch.eye(n, dtype=torch.float64)
    return values | {"s": eye / math.sqrt(n), "C": torch.ones(n, 1, dtype=torch.float64)}


def _drawn(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64) / 2


def largest_errors(n_levels: int, attention: Attention, *, has_skip: bool) -> tuple[dict[str, float], int]:
    """Of the sums of words beside autograd's gradients, for each weight, in units of the largest entry of all
    gradients; and the number of matrix products that all words took."""
    output, values = model(n_levels, attention, has_skip=has_skip), _letters(n_levels)
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    error = leaves["Y"] - Evaluation(leaves)(output)
    (error.square().sum() / 2).backward()
    gradients = {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None and name[-1].isdigit()}
    evaluate = Evaluation(values | {"E": error.detach()})
    sums = {name: torch.zeros_like(value) for name, value in gradients.items()}
    for word in words_of(output, Letter("E")):
        if word.letter in sums:
            sums[word.letter] -= evaluate(word.expression)
    size = max(float(value.abs().max()) for value in gradients.values())
    errors = {name: float((sums[name] - value).abs().max()) / size for name, value in gradients.items()}
    return errors, evaluate.n_products


def _sums() -> Iterator[ComparedValue]:
    cases: tuple[tuple[str, int, Attention, bool], ...] = (
        ("one linear level", 1, "linear", False),
        ("one encoder", 1, "encoder", False),
        ("two encoders", 2, "encoder", False),
        ("two encoders with skips", 2, "encoder", True),
        ("three softmax levels with skips", 3, "softmax", True),
    )
    for name, n_levels, attention, has_skip in cases:
        errors, n_products = largest_errors(n_levels, attention, has_skip=has_skip)
        name, worst = f"words less autograd, {name} ({n_products} products)", max(errors.values())
        yield value_row(name, worst, "equal", agrees=worst < EXACT)


def _counts() -> Iterator[ComparedValue]:
    for (has_skip, base), n_levels in itertools.product(((False, 3), (True, 4)), (1, 2, 3)):
        words = words_of(model(n_levels, "softmax", has_skip=has_skip), Letter("E"))
        n, formula = Counter(word.letter for word in words)["Q1"], base ** (n_levels - 1)
        published = 1 if n_levels == 1 else f"1; formula: {base}^{n_levels - 1}"
        name = f"words of Q of the first of {n_levels} levels{' with skips' * has_skip}"
        yield value_row(name, n, published, agrees=n == formula)


def _encoder() -> list[list[str]]:
    s, X, Q, K, V, b, C = map(Letter, ("s", "X", "Q1", "K1", "V1", "b1", "C"))
    logits = product(s, X, Q, transposed(K), transposed(X))
    names: dict[Expression, str] = {logits: "Z", Sum((product(Softmax(logits), X, V), product(C, b))): "H"}
    errors, _ = largest_errors(1, "encoder", has_skip=False)
    rows = [["gradient by", "word", "error"]]
    for word in words_of(model(1, "encoder", has_skip=False), Letter("E")):
        if word.letter in errors:
            text = written(word.expression, names).replace("1", "")
            rows.append([word.letter[0], f"-{text}", f"{errors[word.letter]:.0e}"])
    return rows


def _printed_rules() -> Iterator[ComparedValue]:
    traces, matrices = swapped_rectifier()
    squared, printed = softmax_denominator()
    transpose, as_printed = softmax_substitution()
    for name, ours, agrees in (
        ("A mm(B, C) = mm(B', A) C: traces differ by", traces, traces < EXACT),
        ("the same as matrices differ by", matrices, matrices < EXACT),
        ("softmax rule, divided by (sum e^x)^2: error", squared, None),
        ("the same as printed, by sum e^x", printed, printed < EXACT),
        ("softmax rule with A' E B': error", transpose, None),
        ("the same as printed, with B E' A", as_printed, as_printed < EXACT),
    ):
        yield value_row(name, ours, None if agrees is None else "equal", agrees=agrees)


def swapped_rectifier() -> tuple[float, float]:
    """By how much A mm(B, C) and mm(B', A) C differ: their traces, and their largest entry."""
    draw = torch.Generator().manual_seed(1)
    A, B, C = _drawn(draw, 4, 6), _drawn(draw, 6, 4), _drawn(draw, 6, 4)
    difference = A @ (C * (B >= 0)) - (A * (B.T >= 0)) @ C
    return abs(float(difference.trace())), float(difference.abs().max())


def softmax_denominator() -> tuple[float, float]:
    """Errors of the differential of tr(A' d softmax(X)) with (sum e^x)^2 as denominator, and as printed."""
    x, dx, A = _softmax_case()
    power_of_e = x.exp()
    total = power_of_e.sum(-1, keepdim=True)
    brackets = (power_of_e[:, :, None] * power_of_e[:, None, :] * (A[:, :, None] - A[:, None, :])).sum(2)
    truth = (A * _softmax_change(x, dx)).sum()
    with_square, without = ((brackets / total**power * dx).sum() - truth for power in (2, 1))
    return abs(float(with_square)), abs(float(without))


def softmax_substitution() -> tuple[float, float]:
    """Errors of the differential of tr(A softmax(X)) with A', and as printed with A itself."""
    x, dx, A = _softmax_case()
    truth = (A @ _softmax_change(x, dx)).trace()
    evaluate, place = Evaluation({"x": x, "A": A}), Letter("x")
    right, printed = (evaluate(SoftmaxBack(place, word)) for word in (transposed(Letter("A")), Letter("A")))
    return abs(float((right * dx).sum() - truth)), abs(float((printed * dx).sum() - truth))


def _softmax_case() -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(2)
    x, dx, A = (_drawn(draw, 5, 5) for _ in range(3))
    return x, dx, A


def _softmax_change(x: Tensor, dx: Tensor) -> Tensor:
    """The directional derivative of the softmax of rows."""
    weights = torch.softmax(x, -1)
    return weights * (dx - (weights * dx).sum(-1, keepdim=True))


def _misprints() -> list[list[str]]:
    return [
        ["printed", "right"],
        ["(1) without a and without m", "F as above"],
        ["A mm(B, C) = mm(B', A) C", "under the trace only"],
        ["last line of the softmax: / sum e^x", "/ (sum e^x)^2"],
        ["substitute B E' A in place of A", "its transpose, A' E B'"],
        ["A' * dX = A' dX; d(A dX) = A' dX; d a(A dX) = aa(A, X) dX", "A * d a(X) = A' * dX, A' being aa(X, A)"],
        ["d(X Q K' X') = ... + X Q K' d(X)'", "that term, and dX Q K' X', for levels after the first"],
        ["E: W -> V", "E: W -> V^n"],
        ["f on S^n", "fixed s in S^n"],
        ["(..., dQ, dK, dV, dQ, ...)", "dW for the second dQ"],
        ["1/sqrt(tn)", "1/sqrt(n)"],
    ]
