"""The hand-programmed solutions, as printed and corrected, and `attnsweep reproduce shin-handmade`."""

import itertools
from pathlib import Path

import pytest
import torch
from rich.console import Console

from attnsweep.reproduction.comparison import Comparison
from attnsweep.reproduction.shin import handmade as shin_handmade
from attnsweep.reproduction.shin.handmade import SOLUTIONS, shift


def _pairs(target: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    answers = target[text[:, :-1], text[:, 1:]]
    return torch.cat([torch.zeros_like(answers[:, :1]), answers], dim=1)


def _signed(n_categories: int) -> torch.Tensor:
    return torch.randn(n_categories, n_categories, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("name", SOLUTIONS)
@pytest.mark.parametrize(("N", "M"), [(2, 2), (3, 4), (5, 3)])
def test_the_mended_solutions_answer_every_text(name: str, N: int, M: int) -> None:
    text = torch.tensor(list(itertools.product(range(N), repeat=M)))
    answers = SOLUTIONS[name](_signed(N), M).answers(text)
    torch.testing.assert_close(answers, _pairs(_signed(N), text), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("name", SOLUTIONS)
def test_the_worked_example(name: str) -> None:
    a, b = torch.meshgrid(torch.arange(1.0, 4.0), torch.arange(1.0, 4.0), indexing="ij")
    target = (10 * a + b).double()
    answers = SOLUTIONS[name](target, 4).answers(torch.tensor([[0, 2, 1, 1]]))
    torch.testing.assert_close(answers, torch.tensor([[0.0, 13.0, 32.0, 22.0]]).double(), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("name", ["solution_2", "solution_3"])
def test_solutions_2_and_3_as_printed_cut_negative_answers(name: str) -> None:
    text = torch.tensor(list(itertools.product(range(3), repeat=4)))
    answers = SOLUTIONS[name](_signed(3), 4, printed=True).answers(text)
    torch.testing.assert_close(answers, _pairs(_signed(3).clamp_min(0.0), text), rtol=0.0, atol=1e-12)


def test_solution_1_as_printed_adds_the_pairs_of_equals() -> None:
    text = torch.tensor([[0, 1, 2, 1]])
    target = _signed(3)
    answers = SOLUTIONS["solution_1"](target, 4, printed=True).answers(text)
    spurious = 2 * target.diagonal()[text[:, :-1]]
    torch.testing.assert_close(answers[:, 1:], _pairs(target, text)[:, 1:] + spurious, rtol=0.0, atol=1e-12)


def test_solutions_2_and_3_compute_the_same() -> None:
    A, U = _signed(4), shift(6)
    X = torch.eye(4, dtype=torch.float64)[:, torch.tensor([3, 0, 0, 2, 1, 3])]
    torch.testing.assert_close((U.T @ X.T @ A @ X).diagonal(), (X.T @ A.T @ X @ U).diagonal(), rtol=0.0, atol=0.0)
    text = torch.randint(4, (50, 6), generator=torch.Generator().manual_seed(0))
    second, third = (SOLUTIONS[name](A, 6).answers(text) for name in ("solution_2", "solution_3"))
    torch.testing.assert_close(second, third, rtol=0.0, atol=1e-12)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return shin_handmade.reproduce(tmp_path_factory.mktemp("handmade"), Console(quiet=True))


def _agrees(comparison: Comparison) -> dict[str, bool | None]:
    return {row.name: row.agrees for row in comparison.rows}


@pytest.mark.slow
def test_which_printed_solutions_hold(comparison: Comparison) -> None:
    agrees = {name: each for name, each in _agrees(comparison).items() if "as printed, " in name}
    assert agrees == {
        "solution 1 as printed, signed q*": False,
        "solution 1 as printed, non-negative q*": False,
        "solution 2 as printed, signed q*": False,
        "solution 2 as printed, non-negative q*": True,
        "solution 3 as printed, signed q*": False,
        "solution 3 as printed, non-negative q*": True,
    }


def test_another_weight_of_the_linear_case_is_off() -> None:
    assert shin_handmade.linear_case_error(7) == 0.0
    assert shin_handmade.linear_case_error(7, factor=9.0) == 9.0


def test_broken_weights_differ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(SOLUTIONS, "solution_3", SOLUTIONS["solution_1"])
    agrees = _agrees(shin_handmade.compare(3, []))
    assert agrees["solution 3 as printed, non-negative q*"] is False
