"""Accepted labels and losses of a workload."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor, nn

from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.engine.contract import Batch, Training
from attnsweep.workloads.engine.judging import first_held, is_stuck, judged
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.engine.verdicts import Rule, VerdictTable
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import check_verdicts, defaults
from attnsweep.workloads.vocabulary import Outcome, with_own
from tests.refusals import refused

YES = np.array([[False, True]])


def _trainings(n_lanes: int = 2, **values: Value) -> list[Training[CategoryPairsParameters]]:
    small: dict[str, Value] = {"n_categories": 3, "n_positions": 4, "n_steps": 8}
    return [Training(defaults(CategoryPairs(), **(small | values)), seed) for seed in range(n_lanes)]


def _trained(workload: CategoryPairs, trainings: list[Training[CategoryPairsParameters]]) -> PackResult:
    return Pack(workload, trainings).train_to_end()


def _by(*rules: Rule, **attributes: Any) -> CategoryPairs:
    workload: CategoryPairs = type("Own", (CategoryPairs,), {"verdicts": VerdictTable(rules), **attributes})()
    return workload


@pytest.mark.parametrize("held", [np.ones((2, 9)), np.ones((1, 9), bool), np.ones(2, bool)])
def test_a_condition_that_gives_no_mask_of_trainings_and_probes_is_refused(held: NDArray[Any]) -> None:
    trainings = _trainings(stop_when_solved=False)
    workload = _by(Rule(outcome="solved", when=lambda *_: held))
    evidence = _trained(CategoryPairs(), trainings).evidence
    with pytest.raises(ValueError, match=r"the outcome solved: got a .* expected a bool array of the shape \(2, 9\)"):
        judged(workload, trainings[0].parameters, evidence)
    with pytest.raises(AssertionError, match=r"the outcome solved: got a "):
        check_verdicts(workload, trainings)


_EVIDENCE = Evidence(steps=np.arange(2), metrics={"eval_loss": np.ones((1, 2))}, levels={})


def test_an_outcome_of_the_workloads_own_may_count_as_stuck() -> None:
    own = {"memorized": Outcome("fits its pairs only", is_stuck=True), "generalized": Outcome("fits all pairs")}
    rules = Rule(outcome="memorized", when=lambda *_: YES), Rule(outcome="generalized", when="eval_loss > 0")
    workload = _by(*rules, outcomes=own)
    verdicts = judged(workload, defaults(workload), _EVIDENCE)
    assert verdicts.outcome.tolist() == [["generalized", "memorized"]]
    assert is_stuck(workload, verdicts.outcome).tolist() == [[False, True]]
    assert list(with_own(own))[-4:] == ["memorized", "generalized", "pruned", "failed"]
    assert len({each.colour for each in with_own(own).values()}) == len(with_own(own))


def test_an_event_came_at_the_first_probe_at_which_it_held() -> None:
    workload = _by()
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


class ComplexMetric(CategoryPairs):
    def measure(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"phase": super().loss(module, batch) * 1j}


def test_what_is_no_real_number_is_refused() -> None:
    text = r"phase: got complex128 of shape \(\) for each training, expected one real number per training; .*\.abs\(\)"
    with pytest.raises(TypeError, match=text):
        _trained(ComplexMetric(), _trainings())


class Shifted(CategoryPairs):
    """A workload whose loss and levels are lower than the true ones by a quarter."""

    by = (0.25, 0.0)

    def evaluate(self, module: nn.Module, batch: Batch) -> Batch:
        return {"eval_loss": super().evaluate(module, batch)["eval_loss"] - self.by[0]}

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
