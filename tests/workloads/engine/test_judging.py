"""Accepted labels and losses of a workload."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.engine.contract import Batch, Evidence, Training, Verdicts
from attnsweep.workloads.engine.judging import first_held, is_stuck, judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.errors import LabelError, SpecError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import check_verdicts, defaults
from attnsweep.workloads.vocabulary import Outcome, with_own
from tests.refusals import refused

NO, YES = np.array([[False, False]]), np.array([[False, True]])


def _trainings(n_lanes: int = 2, **values: Value) -> list[Training[CategoryPairsParameters]]:
    small: dict[str, Value] = {"n_categories": 3, "n_positions": 4, "n_steps": 8}
    return [Training(defaults(CategoryPairs(), **(small | values)), seed) for seed in range(n_lanes)]


def _trained(workload: CategoryPairs, trainings: list[Training[CategoryPairsParameters]]) -> PackResult:
    return Pack(workload, trainings).train_to_end()


def test_the_first_case_that_holds_is_the_verdict() -> None:
    verdicts = Verdicts.first_of({"diverged": NO, ("marginal", "mean"): YES, "solved": YES, ("runaway", "valley"): ~NO})
    assert verdicts.outcome.tolist() == [["runaway", "marginal"]]
    assert verdicts.detail.tolist() == [["valley", "mean"]]


@pytest.mark.parametrize(
    ("outcome", "detail", "text"),
    [
        (None, np.array([[""]]), r"Verdicts\.outcome: got NoneType, expected a NumPy array of str"),
        (np.array([["solved"]]), np.array([[None]]), r"Verdicts\.detail: got array of object, expected a NumPy array"),
        (
            np.array([["solved"]]),
            np.array([""]),
            r"got `outcome` of the shape \(1, 1\) and `detail` of the shape \(1,\), expected equal"
            r" shapes",
        ),
    ],
)
def test_labels_that_are_none_are_refused(outcome: Any, detail: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError, LabelError), match=text):
        Verdicts(outcome=outcome, detail=detail)


def _judging(answer: Callable[[Evidence], Any]) -> CategoryPairs:
    class Own(CategoryPairs):
        def judge(self, parameters: CategoryPairsParameters, evidence: Evidence) -> Any:
            del parameters
            return answer(evidence)

    return Own()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda _: None, r"category_pairs\.judge: got a result of the type NoneType, expected a Verdicts object"),
        (
            lambda _: Verdicts.first_of({"solved": NO}),
            r"category_pairs\.judge: got labels of the shape \(1, 2\), expected the shape \(2,"
            r" 9\), which is one label for each training and each probe",
        ),
    ],
)
def test_an_answer_that_is_no_verdict_is_refused(answer: Callable[[Evidence], Any], text: str) -> None:
    trainings = _trainings(stop_when_solved=False)
    workload = _judging(answer)
    evidence = _trained(workload, trainings).evidence
    with pytest.raises((TypeError, ValueError), match=text):
        judged(workload, trainings[0].parameters, evidence)
    with pytest.raises(AssertionError, match=text):
        check_verdicts(workload, trainings)
    # `judge` is also called during training, at the first probe, with one probe and not nine.
    with pytest.raises((TypeError, ValueError), match=text.partition(", expected")[0]):
        _trained(workload, _trainings(stop_when_solved=True))


_EVIDENCE = Evidence(steps=np.arange(2), metrics={"eval_loss": np.ones((1, 2))}, levels={})


def test_an_outcome_of_the_workloads_own_is_accepted_and_may_count_as_stuck() -> None:
    workload = _judging(lambda _: Verdicts.first_of({"memorized": YES}, "generalized"))
    own = {"memorized": Outcome("fits its pairs only", is_stuck=True), "generalized": Outcome("fits all pairs")}
    type(workload).outcomes = own
    verdicts = judged(workload, defaults(workload), _EVIDENCE)
    assert verdicts.outcome.tolist() == [["generalized", "memorized"]]
    assert is_stuck(workload, verdicts.outcome).tolist() == [[False, True]]
    assert list(with_own(own))[-4:] == ["memorized", "generalized", "pruned", "failed"]
    assert len({each.colour for each in with_own(own).values()}) == len(with_own(own))


def test_an_event_came_at_the_first_probe_at_which_it_held() -> None:
    workload = _judging(lambda _: None)
    held = np.array([[False, True, False, True], [False, False, False, True], [False] * 4])
    evidence = Evidence(steps=np.arange(4), metrics={"eval_loss": np.ones((3, 4))}, levels={})
    type(workload).events = {"fits": lambda *_: held}
    first = first_held(workload, defaults(workload), evidence, np.array([3, 2, 3]))
    assert first["fits"].tolist() == [1, -1, -1]
    evidence = replace(evidence, metrics=evidence.metrics | {"accuracy": held.astype(float)})
    type(workload).events = {"fits": "accuracy >= 0.99"}
    assert first_held(workload, defaults(workload), evidence, np.array([3, 2, 3]))["fits"].tolist() == [1, -1, -1]
    type(workload).events = {"fits": "acuracy >= 0.99"}
    with refused("category_pairs.events, fits", SpecError):
        first_held(workload, defaults(workload), evidence, np.array([3, 2, 3]))
    type(workload).events = {"fits": lambda *_: held[:1]}
    with pytest.raises(
        ValueError, match=r"fits: got a bool array of the shape \(1, 4\), expected a bool array of the shape"
    ):
        first_held(workload, defaults(workload), evidence, np.array([3, 2, 3]))


class Complex(CategoryPairs):
    def eval_loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return torch.complex(super().eval_loss(module, batch), super().eval_loss(module, batch))


class OneForEachPosition(CategoryPairs):
    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return super().loss(module, batch) * torch.ones(3)

    def eval_loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return self.loss(module, batch).mean()


class ComplexMetric(CategoryPairs):
    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"phase": super().loss(module, batch) * 1j}


@pytest.mark.parametrize(
    ("workload", "text"),
    [
        (Complex(), r"eval_loss: got complex128 of shape \(\) .*, expected one real number per training; .*\.abs\(\)"),
        (OneForEachPosition(), r"loss: got float32 of shape \(3,\) for each training, expected one .* with \.mean\(\)"),
        (ComplexMetric(), r"phase: got complex128 of shape \(\) for each training, expected one real number"),
    ],
)
def test_what_is_no_real_number_is_refused(workload: CategoryPairs, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        _trained(workload, _trainings())


class Shifted(CategoryPairs):
    """A workload whose loss and levels are lower than the true ones by a quarter."""

    by = (0.25, 0.0)

    def eval_loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return super().eval_loss(module, batch) - self.by[0]

    def levels(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {name: level - self.by[1] for name, level in super().levels(module, batch).items()}


SOLVING: dict[str, Value] = {"init_sigma": 0.05, "learning_rate": 0.05, "n_steps": 400, "stop_when_solved": False}


@pytest.mark.slow
def test_a_negative_loss_is_no_solution() -> None:
    trainings = _trainings(1, **SOLVING)
    result = _trained(Shifted(), trainings)
    loss = result.evidence.metrics["eval_loss"][0]
    [found] = np.flatnonzero(loss < 0)
    # The training ended there, and the negative loss is recorded.
    assert result.diverged_step[0] == result.n_steps[0] == result.evidence.steps[found] < 400
    assert np.isnan(loss[found + 1 :]).all()
    with pytest.raises(AssertionError, match=r"eval_loss -0\.\d+ is negative.*set `loss_may_be_negative = True`"):
        check_verdicts(Shifted(), trainings)


@pytest.mark.slow
def test_a_loss_that_may_be_negative_may_solve() -> None:
    trainings = _trainings(1, **SOLVING)
    declared = type("Declared", (Shifted,), {"loss_may_be_negative": True})()
    # Allowed, because one of the levels is negative.
    evident = type("Evident", (Shifted,), {"by": (0.25, 0.25)})()
    for workload in (declared, evident):
        result = _trained(workload, trainings)
        assert result.last("eval_loss")[0] < 0
        assert (result.diverged_step[0], result.n_steps[0]) == (-1, 400)
        check_verdicts(workload, trainings)


def test_rounding_that_outweighs_the_loss_is_no_solution() -> None:
    """In float32, terms of 1e8 turn a sum of squares into -0.4, below any level."""
    parameters = defaults(
        CategoryPairs(),
        init_sigma=32.058036810444456,
        learning_rate=1.0,
        optimizer="lbfgs",
        n_steps=60,
        dtype="float32",
    )
    result = _trained(CategoryPairs(), [Training(parameters, 52)])
    assert np.nanmin(result.evidence.metrics["eval_loss"]) < -0.1
    assert result.diverged_step[0] > 0
