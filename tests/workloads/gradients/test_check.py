"""Planted faults in a user's attention: each is caught, by the checks that can see it, and named."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnsweep import Batch, defaults
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.gradients import check as checks
from attnsweep.workloads.gradients.check import (
    Finding,
    block_gradients,
    check,
    check_blocks,
    check_identities,
    check_sgd_step,
    check_slopes,
    check_vmapped,
    slope,
)
from attnsweep.workloads.gradients.subject import after_some_steps, at_random_weights, at_weights
from attnsweep.workloads.identities import Group
from attnsweep.workloads.update_rules import UPDATE_RULES, Tensors, UpdateRule
from tests.workloads.gradients.small_workload import SmallWorkload


@dataclass(frozen=True)
class Fault:
    """Where the fault is, which checks fail, and what one of them says."""

    planted: Mapping[str, str]
    checks: set[str]
    says: str


FAULTS = {
    "none": Fault({}, set(), ""),
    "mask": Fault(
        {"mask": "multiplies"},
        {"key bias", "attention rows", "closed form"},
        "the key bias has a gradient: the mask multiplies (masked logits must become minus infinity, not 0)",
    ),
    "transpose": Fault(
        {"logits": "transposed"},
        {"key bias", "closed form"},
        "the key bias has a gradient and the query bias has none: the logits are transposed (k q^t for q k^t)",
    ),
    "softmax": Fault(
        {"softmax": "over queries"},
        {"key bias", "attention rows", "closed form"},
        "the weights of a key sum to 1, not those of a query: the softmax runs over queries",
    ),
    "norm": Fault(
        {"norm": "root mean square"},
        {"row sums", "closed form"},
        "the norm does not remove the row mean, forward or backward",
    ),
    "row mean": Fault(
        {"norm": "mean without gradient"},
        {"row sums", "differences", "closed form"},
        "the norm does not remove the row mean, forward or backward",
    ),
    "scale": Fault(
        {"scale": "twice"}, {"closed form"}, "the gradient is not that of PyTorch's own attention: a factor"
    ),
    "low rank": Fault(
        {"low_rank": "backward"},
        {"differences", "closed form"},
        "autograd's gradient is not the slope of the loss: a backward pass written by hand, or a detach",
    ),
}


def findings_of(workload: Workload[Any]) -> list[Finding]:
    parameters = defaults(workload)
    # Blocks have a test of their own: to trace a shape takes a second.
    subject = at_random_weights(workload, [Training(parameters, seed) for seed in (0, 1)])
    points = subject.points()
    return [*check_vmapped(subject, points), *check_slopes(subject, points), *check_identities(subject, points)]


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_planted_fault_is_caught_and_named(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmallWorkload, "faults", fault.planted)
    failed = [each for each in findings_of(SmallWorkload()) if each.verdict == "fails"]
    assert {each.check for each in failed} == fault.checks
    assert not fault.says or any(fault.says in each.message for each in failed)


def test_a_loss_that_mixes_trainings_is_caught() -> None:
    class Mixing(CategoryPairs):
        def loss(self, module: nn.Module, batch: Batch) -> Tensor:
            mixed: Tensor = _Mixed.apply(super().loss(module, batch))  # type: ignore[no-untyped-call]
            return mixed

    failed = [each for each in findings_of(Mixing()) if each.verdict == "fails"]
    assert {each.check for each in failed} == {"fused"}
    assert "the loss mixes trainings" in failed[0].message


class _Mixed(torch.autograd.Function):
    """The identity, with a rule for vmap, written by hand, that mixes the losses of trainings."""

    @staticmethod
    def forward(value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, of_output: Tensor) -> Tensor:  # noqa: ARG004
        return of_output

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], value: Tensor) -> tuple[Tensor, int]:  # noqa: ARG004
        return value + 0.1 * value.flip(0), 0


@pytest.mark.slow
def test_the_block_engine_computes_the_gradient_of_each_training() -> None:
    parameters = defaults(CategoryPairs(), n_categories=3, n_positions=4)
    found = list(check(at_random_weights(CategoryPairs(), [Training(parameters, seed) for seed in (0, 1)])))
    assert {each.check for each in found} == {"fused", "blocks", "differences", "group", "closed form", "sgd step"}
    assert all(each.verdict == "holds" for each in found)
    assert max(each.error or 0.0 for each in found if each.check != "differences") < 1e-15


@pytest.mark.slow
def test_the_block_engine_computes_the_gradients_that_line_searches_follow() -> None:
    parameters = defaults(
        CategoryPairs(),
        variant="categories_only",
        attention_activation="softmax",
        expectation="sampled",
        optimizer="lbfgs",
        n_categories=4,
        n_positions=6,
    )
    subject = at_random_weights(CategoryPairs(), [Training(parameters, seed) for seed in (0, 1)])
    found = list(check_blocks(subject, subject.points(), compiles=False))
    assert [(each.check, each.parameter, each.verdict) for each in found] == [
        ("blocks", name, "holds") for name in ("q_NN", "v_KM")
    ]


@pytest.mark.slow
def test_gradients_read_from_a_block_are_exact_however_small_they_are() -> None:
    workload = CategoryPairs()
    trainings = [Training(defaults(workload, init_sigma=1e-8), 0)]
    subject = at_random_weights(workload, trainings)
    tiny = {name: 1e-8 * value for name, value in subject.weights.items()}
    at_zero = at_weights(workload, trainings, tiny, "a zero")
    assert at_zero is not None
    gradients, alone = block_gradients(at_zero, compiled=False), at_zero.point(0).gradients
    for name, value in gradients.items():
        np.testing.assert_allclose(value[0], alone[name], rtol=1e-12, atol=1e-22)


def test_trainings_that_diverged_are_left_out() -> None:
    workload = CategoryPairs()
    wild, tame = (Training(defaults(workload, learning_rate=rate), 0) for rate in (1e3, 1e-2))
    subject = after_some_steps(workload, [wild, tame])
    assert subject is not None
    assert [training.parameters.learning_rate for training in subject.lanes.trainings] == [1e-2]
    assert after_some_steps(workload, [wild]) is None


QUANTITIES = {"null", "sum", "charge_qk", "charge_low_rank"}


def found() -> list[Finding]:
    workload = SmallWorkload()
    subject = at_random_weights(workload, [Training(defaults(workload), seed) for seed in (0, 1)])
    return list(check_sgd_step(subject, subject.points()))


def failed() -> set[str]:
    return {each.parameter for each in found() if each.verdict == "fails"}


def test_the_prediction_is_exact_but_for_rounding() -> None:
    assert {each.parameter for each in found()} == QUANTITIES
    assert max(each.error or 0.0 for each in found()) < 1e-15


@pytest.mark.parametrize(
    ("fault", "moved"),
    [
        ({"mask": "multiplies"}, {"null"}),
        ({"norm": "root mean square"}, {"sum"}),
        ({"logits": "normalized keys"}, {"charge_qk"}),
        ({"low_rank": "squashed"}, {"charge_low_rank"}),
    ],
)
def test_a_wrong_model_moves_what_should_be_conserved(
    fault: dict[str, str], moved: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SmallWorkload, "faults", fault)
    assert moved <= failed()


def test_a_step_that_is_not_plain_descent_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def along_signs(theta: Tensor, gradient: Tensor, slots: Tensors, rates: Tensors) -> None:
        UPDATE_RULES["sgd"].update(theta, gradient.sign(), slots, rates)

    monkeypatch.setattr(checks, "UPDATE_RULES", {"sgd": UpdateRule(update=along_signs)})
    assert {"sum", "charge_qk", "charge_low_rank"} <= failed()


def test_the_squared_rate_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "moved", lambda self, gradients: 0.0 * self.charge(gradients))
    assert failed() == {"charge_qk", "charge_low_rank"}


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_the_slope_of_a_smooth_function(scale: float) -> None:
    found = slope(lambda x: math.exp(x) * math.sin(3 * x + 1), 1.0, scale)
    assert found.value == pytest.approx(math.sin(1) + 3 * math.cos(1), abs=1e-10)
    assert found.gap < 1e-8


def test_smaller_steps_get_past_a_kink_nearby() -> None:
    found = slope(lambda x: x + 5 * max(0.0, x - 1e-4), 1.0, 1.0)
    assert found.value == pytest.approx(1.0, abs=1e-10)
    assert found.gap < 1e-9


@pytest.mark.parametrize("kink", [0.0, 1e-13])
def test_a_kink_at_the_point_is_seen_although_all_slopes_agree(kink: float) -> None:
    found = slope(lambda x: 2 * x + abs(x - kink), 1.0, 1.0)
    assert found.gap == pytest.approx(1.0, rel=1e-3)
    assert found.gap > found.rounding


def test_a_slope_below_the_rounding_of_the_function_is_called_so() -> None:
    found = slope(lambda x: 1.0 + 1e-14 * math.sin(x), 1.0, 1e-14)
    assert found.gap < found.rounding
