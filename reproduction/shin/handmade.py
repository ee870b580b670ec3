"""The three solutions of the category-pairs task whose weights Shin & Matzinger set by hand, as printed and as
corrected, for any number N of categories and M of positions.

With tokens X (N + M rows, categories first) and Z = X + v X X^t k^t q X, the answers are
Y = second relu(first Z + first_bias) + second_bias. There is no LayerNorm.

Solution 1: k = [0 | I], q = [0 | 2U], v = diag(I, 0): Z's categories are 2 e_a + e_b with a = X_{i-1}, b = X_i, and
    one hidden unit per pair recognizes it. As printed, unit (a, a) = 3 e_a answers 6 to 2 e_a + e_b where unit (a, b)
    answers 5: both pass the bias -4. Corrected: the units (a, a) have bias -8, and their weight makes up for the
    answers of the units (a, c) to 3 e_a: second(a, a) = q*(a, a) - 2 sum_{c != a} q*(a, c).
Solution 2: k = [I | 0], q = [q* | 0], v = diag(0, U^t)/c; solution 3: k = [0 | I], q = [0 | U], v = diag(q*^t, 0)/c.
    relu(Z - 1) keeps the one entry of Z, on position i (2) or category X_i (3), that X_i itself raises; as printed,
    this gives max(q*, 0). Corrected for both signs: with b0 = max |q*|, c = 2 b0 + 1, the bias is -1 + b0/c, and b0 is
    subtracted from the answer.
    Both compute the same: diag(U^t X_C^t A X_C) = diag(X_C^t A^t X_C U), X_C the categories' rows, A = q*.

Axes: N category, M position, S = N + M token row, H hidden, B text, K = M - 1 predicted position, X = M or N row of the
factors k and q.
Source: Shin & Matzinger 2025, sections 2.1-2.3; corrected as in docs/notes/2026-11-21-theory.md.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console
from torch import Tensor
from torch.nn.functional import pad

from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure, value_row
from attnsweep.reproduction.figures import HeatMap, draw_heat_maps
from attnsweep.workloads.category_pairs.attention import attend_by_token, one_hot_texts


@dataclass(frozen=True, kw_only=True, slots=True)
class Handmade:
    """Is to answer q*(X_{i-1}, X_i) at positions i = 2..M, and 0 at i = 1."""

    k_XS: Tensor
    q_XS: Tensor
    v_SS: Tensor
    first_HS: Tensor
    first_bias_H: Tensor
    second_H: Tensor
    second_bias: float

    def answers(self, text_BM: Tensor) -> Tensor:
        """(B, M)"""
        n_positions = text_BM.shape[1]
        one_hot_BMN = one_hot_texts(text_BM, self.v_SS.shape[0] - n_positions, self.v_SS.dtype)
        residual_SS = torch.eye(self.v_SS.shape[0], dtype=self.v_SS.dtype)
        token_BMS = attend_by_token(self.k_XS.T @ self.q_XS, self.v_SS, residual_SS, one_hot_BMN, softmax=False)
        hidden_BMH = torch.relu(token_BMS @ self.first_HS.T + self.first_bias_H)
        return hidden_BMH @ self.second_H + self.second_bias


def solution_1(target_NN: Tensor, n_positions: int, *, printed: bool = False) -> Handmade:
    """Attention copies the previous category; the feed-forward part holds the table."""
    N, M = target_NN.shape[0], n_positions
    categories = torch.eye(N).to(target_NN)
    pairs_NNN = 2 * categories[:, None] + categories[None, :]
    bias_NN = torch.full_like(target_NN, -4.0)
    second_NN = target_NN
    if not printed:
        bias_NN = bias_NN - 4.0 * categories
        others_N = target_NN.sum(1) - target_NN.diagonal()
        second_NN = target_NN - torch.diag(2.0 * others_N)
    return Handmade(
        k_XS=_beside(categories.new_zeros(M, N), torch.eye(M).to(target_NN)),
        q_XS=_beside(categories.new_zeros(M, N), 2.0 * shift(M).to(target_NN)),
        v_SS=_diagonal(categories, target_NN.new_zeros(M, M)),
        first_HS=_beside(pairs_NNN.flatten(0, 1), target_NN.new_zeros(N**2, M)),
        first_bias_H=bias_NN.flatten(),
        second_H=second_NN.flatten(),
        second_bias=0.0,
    )


def solution_2(target_NN: Tensor, n_positions: int, *, printed: bool = False) -> Handmade:
    """The logit for the previous token is the answer; the values write it where the feed-forward part reads it."""
    N, M = target_NN.shape[0], n_positions
    c, lift = _range(target_NN, printed)
    return Handmade(
        k_XS=_beside(torch.eye(N).to(target_NN), target_NN.new_zeros(N, M)),
        q_XS=_beside(target_NN, target_NN.new_zeros(N, M)),
        v_SS=_diagonal(target_NN.new_zeros(N, N), shift(M).T.to(target_NN) / c),
        first_HS=_beside(target_NN.new_zeros(M, N), torch.eye(M).to(target_NN)),
        first_bias_H=target_NN.new_full((M,), -1.0 + lift / c),
        second_H=target_NN.new_full((M,), c),
        second_bias=-lift,
    )


def solution_3(target_NN: Tensor, n_positions: int, *, printed: bool = False) -> Handmade:
    """Attention selects the previous position, and the values hold the table."""
    N, M = target_NN.shape[0], n_positions
    c, lift = _range(target_NN, printed)
    return Handmade(
        k_XS=_beside(target_NN.new_zeros(M, N), torch.eye(M).to(target_NN)),
        q_XS=_beside(target_NN.new_zeros(M, N), shift(M).to(target_NN)),
        v_SS=_diagonal(target_NN.T / c, target_NN.new_zeros(M, M)),
        first_HS=_beside(torch.eye(N).to(target_NN), target_NN.new_zeros(N, M)),
        first_bias_H=target_NN.new_full((N,), -1.0 + lift / c),
        second_H=target_NN.new_full((N,), c),
        second_bias=-lift,
    )


SOLUTIONS = {"solution_1": solution_1, "solution_2": solution_2, "solution_3": solution_3}


def shift(n_positions: int) -> Tensor:
    """(M, M): 1 where the row is one position before the column."""
    return torch.diag(torch.ones(n_positions - 1, dtype=torch.float64), diagonal=1)


def _range(target_NN: Tensor, printed: bool) -> tuple[float, float]:
    largest = target_NN.abs().max().item()
    return (largest + 1.0, 0.0) if printed else (2.0 * largest + 1.0, largest)


def _diagonal(on_categories_NN: Tensor, on_positions_MM: Tensor) -> Tensor:
    N, M = on_categories_NN.shape[0], on_positions_MM.shape[0]
    return pad(on_categories_NN, (0, M, 0, M)) + pad(on_positions_MM, (N, 0, N, 0))


def _beside(left: Tensor, right: Tensor) -> Tensor:
    return torch.cat([left, right], dim=1)


SMALL_SIZES = ((2, 2), (2, 5), (3, 4), (4, 3), (5, 2))
"""(N, M) of the problems of which all texts are answered."""
LARGE_SIZE = (10, 50)
N_RANDOM_TEXTS = 200
_TOLERANCE = 1e-10
_EXAMPLE = ((0, 2, 1, 1), (0.0, 13.0, 32.0, 22.0))
"""The paper's example text X = (1, 3, 2, 2), counted from 0, and its answers for the target q*(a, b) = 10 a + b."""
_TITLES = {name: name.replace("_", " ") for name in SOLUTIONS}


def reproduce(directory: Path, console: Console) -> Comparison:
    """All texts of small problems, and random texts of one as large as the paper's."""
    console.print("answering texts with hand-programmed weights")
    return compare(N_RANDOM_TEXTS, save_figure(pairs_figure(), directory, "answers_by_pair"))


def compare(n_random_texts: int, figures: list[Path]) -> Comparison:
    problems = [(N, M, _every_text(N, M)) for N, M in SMALL_SIZES]
    large = torch.randint(LARGE_SIZE[0], (n_random_texts, LARGE_SIZE[1]), generator=torch.Generator().manual_seed(0))
    problems.append((*LARGE_SIZE, large))
    errors = {
        (name, form, sign): _largest(problems, sign, partial(_off, name, form, lambda q: q))
        for name in SOLUTIONS
        for form, sign in _CASES
    }
    off_cut, off_cut_too, off_added = (
        _largest(problems, "signed", partial(_off, name, "printed", wanted))
        for name, wanted in (
            ("solution_2", lambda q: q.clamp_min(0.0)),
            ("solution_3", lambda q: q.clamp_min(0.0)),
            ("solution_1", printed_solution_1),
        )
    )
    difference = _largest(
        problems,
        "signed",
        lambda q, text: _answers("solution_2", "corrected", q, text) - _answers("solution_3", "corrected", q, text),
    )
    off_diagonal = _largest(problems, "signed", _diagonals_differ)
    small = ", ".join(f"({N}, {M})" for N, M in SMALL_SIZES)
    return Comparison(
        title="Hand-programmed solutions 1-3 of category pairs, as printed and corrected",
        source="Shin & Matzinger 2025, sections 2.1-2.3",
        rows=[
            *(_row(name, form, sign, errors[name, form, sign]) for name, form, sign in errors if form == "printed"),
            _difference("2, 3 as printed: off max(q*, 0) by", None, max(off_cut, off_cut_too)),
            _difference("1 as printed: off the form below by", None, off_added),
            *(_example_row(name) for name in SOLUTIONS),
            _difference("2, 3 corrected: answers differ by", "the same", difference),
            _difference("diag(U^t X^t AX), diag(X^t A^t XU)", "the same", off_diagonal),
            _difference("10 X_(i-1) + X_i, no ReLU: off by", "exact", linear_case_error(LARGE_SIZE[1])),
        ],
        tables=[("Largest error over all texts", _error_table(errors))],
        figures=figures,
        notes=[
            f"All texts of (N, M) in {small}, and {n_random_texts} random texts of {LARGE_SIZE}, in float64. Entries "
            "of q* are N(0, 1), or their absolute values for non-negative q*. Positions: i = 2..M, those with a pair.",
            "The example: X = (1,3,2,2), q*(a,b) = 10a + b; the answer to X_1 is 0.",
            "Solution 1 as printed: at a pair (a,b) hidden unit (a,b) is 1 and unit (a,a) is 2, so the answer is "
            "q*(a,b) + 2 q*(a,a). At (a,a) unit (a,a) is 5 and each other unit (a,c) is 2, so the answer is "
            "5 q*(a,a) + 2 Sum_(c != a) q*(a,c). Corrected: bias -8 for the units (a,a), and "
            "q*(a,a) - 2 Sum_(c != a) q*(a,c) in the read-out.",
            "Solutions 2 and 3 as printed cut negative answers at 0. Corrected, with b0 = max |q*|: c = 2 b0 + 1, bias "
            "-1 + b0/c, and b0 subtracted from the answer.",
        ],
    )


_CASES = tuple(itertools.product(("printed", "corrected"), ("signed", "non-negative")))


def pairs_figure() -> Figure:
    """The target and the answers of each solution, as printed and as corrected, for all pairs of categories."""
    N = 6
    target = _target(N, "signed")
    text = torch.cartesian_prod(torch.arange(N), torch.arange(N))
    rows = []
    for name, title in _TITLES.items():
        tables = {"q*": target} | {
            form: SOLUTIONS[name](target, 2, printed=form == "printed").answers(text)[:, 1].view(N, N)
            for form in ("printed", "corrected")
        }
        errors = {form: (table - target).abs().max().item() for form, table in tables.items()}
        axes = {form: {"title": f"{title}, {form}: error {error:.2g}"} for form, error in errors.items()}
        names = {"xlabel": "current category", "ylabel": "previous category"}
        rows.append([HeatMap(values=table.numpy(), axes=axes[form] | names) for form, table in tables.items()])
    return draw_heat_maps(rows)


def printed_solution_1(target_NN: Tensor) -> Tensor:
    """What solution 1 answers as printed, (previous category, current category)."""
    diagonal_N = target_NN.diagonal()
    return target_NN + 2 * diagonal_N.unsqueeze(1) + torch.diag(2 * target_NN.sum(1))


def linear_case_error(n_positions: int, factor: float = 10.0) -> float:
    """Largest error of the model without ReLU that should answer 10 X_{i-1} + X_i."""
    N, M = 10, n_positions
    text = torch.randint(N, (50, M), generator=torch.Generator().manual_seed(1))
    blank = torch.zeros(N + M, N + M, dtype=torch.float64)
    logits, value, read_out = blank.clone(), blank.clone(), torch.zeros(N + M, dtype=torch.float64)
    logits[N:, N:] = factor * shift(M)
    value[:N, :N] = torch.eye(N)
    read_out[:N] = torch.arange(N)
    one_hot = one_hot_texts(text, N, torch.float64)
    tokens = attend_by_token(logits, value, torch.eye(N + M, dtype=torch.float64), one_hot, softmax=False)
    wanted = 10 * text[:, :-1] + text[:, 1:]
    return ((tokens @ read_out)[:, 1:] - wanted).abs().max().item()


_Problems = list[tuple[int, int, Tensor]]


def _every_text(N: int, M: int) -> Tensor:
    return torch.tensor(list(itertools.product(range(N), repeat=M)))


def _target(N: int, sign: str) -> Tensor:
    target = torch.randn(N, N, generator=torch.Generator().manual_seed(N), dtype=torch.float64)
    return target.abs() if sign == "non-negative" else target


def _answers(name: str, form: str, target: Tensor, text: Tensor) -> Tensor:
    return SOLUTIONS[name](target, text.shape[1], printed=form == "printed").answers(text)[:, 1:]


def _off(name: str, form: str, wanted: Callable[[Tensor], Tensor], target: Tensor, text_BM: Tensor) -> Tensor:
    return _answers(name, form, target, text_BM) - wanted(target)[text_BM[:, :-1], text_BM[:, 1:]]


def _largest(problems: _Problems, sign: str, error: Callable[[Tensor, Tensor], Tensor]) -> float:
    return torch.stack([error(_target(N, sign), text).abs().max() for N, _, text in problems]).max().item()


def _diagonals_differ(A: Tensor, text: Tensor) -> Tensor:
    U = shift(text.shape[1])
    X = torch.eye(len(A), dtype=torch.float64)[text[:50]].mT
    left, right = U.T @ X.mT @ A @ X, X.mT @ A.T @ X @ U
    return left.diagonal(dim1=1, dim2=2) - right.diagonal(dim1=1, dim2=2)


def _row(name: str, form: str, sign: str, error: float) -> ComparedValue:
    ours = f"off by {error:.2g}" if error > _TOLERANCE else f"exact ({error:.0e})"
    return value_row(f"{_TITLES[name]} as {form}, {sign} q*", ours, "exact", agrees=error <= _TOLERANCE)


def _difference(name: str, published: str | None, distance: float) -> ComparedValue:
    agrees = None if published is None else distance <= _TOLERANCE
    return value_row(name, f"{distance:.1e}", published, agrees=agrees)


def _example_row(name: str) -> ComparedValue:
    text, wanted = _EXAMPLE
    table = torch.arange(1.0, 4.0, dtype=torch.float64)
    target = 10 * table.unsqueeze(1) + table
    answers = SOLUTIONS[name](target, len(text)).answers(torch.tensor([text]))[0]
    expected = torch.tensor(wanted, dtype=torch.float64)
    agrees = bool((answers - expected).abs().max() <= _TOLERANCE)
    return value_row(f"{_TITLES[name]} corrected: example", _listed(answers), _listed(expected), agrees=agrees)


def _listed(values: Tensor) -> str:
    return "(" + ", ".join(f"{value:.10g}" for value in values.round(decimals=9).abs().tolist()) + ")"


def _error_table(errors: Mapping[tuple[str, str, str], float]) -> list[list[str]]:
    header = ["solution", *(f"{form}, q* {sign}" for form, sign in _CASES)]
    return [header] + [
        [_TITLES[name], *(f"{errors[name, form, sign]:.1e}" for form, sign in _CASES)] for name in SOLUTIONS
    ]
