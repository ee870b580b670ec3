"""The verdicts on the equations of systems P and C; a wrong form gets another verdict."""

import itertools
import math

import pytest
import torch

from attnsweep.reproduction.shin import equations_of_categories as categories
from attnsweep.reproduction.shin import equations_of_positions as positions
from attnsweep.reproduction.shin.equations_of_categories import gain, stationary_gains
from attnsweep.reproduction.shin.stationary import EquationCheck, largest_error


def _check(printed: float | None, right: float) -> EquationCheck:
    return EquationCheck(
        equation="1", subject="a sum", statement="1 = 1", flaw="missed", printed_error=printed, right_error=right
    )


@pytest.mark.parametrize(
    ("printed", "right", "verdict"),
    [
        (0.0, 0.0, "holds"),
        (0.0, 1.0, "holds"),
        (1.0, 0.0, "missed"),
        (1.0, 1.0, "refuted"),
        (None, 0.0, "ours holds"),
        (None, 1.0, "refuted"),
        (1.0, math.nan, "refuted"),
        (math.nan, 0.0, "missed"),
        (None, math.nan, "refuted"),
    ],
)
def test_the_verdict_follows_from_the_errors(printed: float | None, right: float, verdict: str) -> None:
    assert _check(printed, right).verdict == verdict


def test_nan_is_the_largest_error() -> None:
    assert largest_error(torch.tensor([-3.0, 1.0]), 2.0) == 3.0
    assert math.isnan(largest_error(torch.tensor([1.0, math.nan]), 2.0))


@pytest.mark.slow
def test_verdicts_of_positions_only() -> None:
    verdicts = [(check.equation, check.subject, check.verdict) for check in positions.checks_of_positions()]
    assert verdicts == [
        ("§3.1", "loss", "ours holds"),
        ("3.7-3.9, 3.18", "gradient by q", "misprinted"),
        ("3.7-3.9, 3.18", "gradient by v", "misprinted"),
        ("3.33", "centred shift", "missed"),
        ("§3.1", "mean predictor", "ours holds"),
        ("§3.1", "zeros", "ours holds"),
        ("§3.1", "escape rates", "ours holds"),
        ("§3.1", "valley at infinity", "missed"),
        ("§3.1", "barrier", "ours holds"),
        ("§3.1", "bound on sigma", "misprinted"),
        ("§3.2", "softmax, points", "ours holds"),
        ("§3.2", "softmax, plateaus", "ours holds"),
    ]


@pytest.mark.slow
def test_verdicts_of_categories_only() -> None:
    verdicts = [(check.equation, check.subject, check.verdict) for check in categories.checks_of_categories()]
    assert verdicts == [
        ("§3.3", "loss", "ours holds"),
        ("§3.3", "gradient by v", "ours holds"),
        ("§3.3", "gradient by q", "ours holds"),
        ("§3.3", "zeros", "ours holds"),
        ("§3.3", "constant predictor", "ours holds"),
        ("3.54", "row sums", "needs an assumption"),
        ("§3.3", "marginal predictor", "missed"),
        ("3.54", "zero row sums", "missed"),
        ("§3.3", "zero diagonal", "missed"),
        ("before 3.71", "solution", "misprinted"),
    ]


@pytest.mark.parametrize("check", [positions.gradient_of_attention, positions.gradient_of_values])
def test_another_factor_of_the_gradients_gets_another_verdict(check) -> None:  # type: ignore[no-untyped-def]
    assert check(printed_factor=1.0).verdict == "holds"
    assert check(printed_factor=0.5).verdict == "misprinted"


def test_another_factor_of_the_gradients_of_categories_only_is_refuted() -> None:
    assert [check.verdict for check in categories.gradients(factor=-1.0)] == ["refuted"] * 2


def test_other_indices_are_refuted() -> None:
    assert positions.zeros(index=1).verdict == "refuted"
    assert categories.zeros(index=2).verdict == "refuted"
    assert categories.marginal_predictor(index=0).verdict == "refuted"


@pytest.mark.slow
def test_other_exponents_of_the_bound_get_other_verdicts() -> None:
    assert positions.bound_on_sigma(printed_exponent=-0.75).verdict == "holds"
    assert positions.bound_on_sigma(right_exponent=-1.0).verdict == "refuted"


@pytest.mark.scale
@pytest.mark.slow
def test_a_search_that_stays_at_finite_logits_refutes() -> None:
    assert positions.softmax_has_no_stationary_point(n_solves=5, saturated=100.0).verdict == "refuted"


def test_both_signs_of_the_solution() -> None:
    assert categories.solution(printed_sign=1.0, right_sign=-1.0).verdict == "holds"
    assert categories.solution(printed_sign=-1.0, right_sign=-1.0).verdict == "refuted"


def test_a_family_that_is_not_found_is_refuted() -> None:
    assert categories.between_levels("zero_diagonal", n_solves=1).verdict == "refuted"


@pytest.mark.scale
@pytest.mark.slow
def test_another_level_of_a_family_between_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(categories, "stationary_gains", lambda target, M: stationary_gains(target, M + 1))
    assert categories.between_levels("zero_row_sums").verdict == "refuted"


def test_stationary_gains_alternate_and_are_stationary() -> None:
    target = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = sorted(stationary_gains(target, 5), key=lambda each: each.angle)
    assert len(found) >= 2
    assert all(first.index != second.index for first, second in itertools.pairwise(found))
    for each in found:
        angle = torch.tensor([each.angle], dtype=torch.float64, requires_grad=True)
        value = gain(angle, target, 5)
        (slope,) = torch.autograd.grad(value.sum(), angle)
        assert abs(slope.item()) < 1e-6
        assert 0 <= value.item() < target.square().mean().item()
