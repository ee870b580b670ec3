"""The conformance suite finds each fault that it claims to find."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.engine.contract import Batch, Lanes, Training
from attnsweep.workloads.engine.first_order import FirstOrder
from attnsweep.workloads.engine.lbfgs import Lbfgs
from attnsweep.workloads.engine.optimizers import Evaluate, State
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.engine.verdicts import Rule, VerdictTable
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.testing import (
    check_fused_equals_alone,
    check_lanes_are_isolated,
    check_resumed_equals_undisturbed,
    check_same_seed_same_result,
    check_workload,
    defaults,
)
from tests.workloads.engine.any_module import AnyModule, AnyParameters

SMALL: dict[str, Value] = {"n_categories": 3, "n_positions": 4, "n_steps": 40}
OPTIMIZERS = ["sgd", "adam", "adamw", "lbfgs"]


def _trainings(**values: float | str | None) -> list[Training[CategoryPairsParameters]]:
    return [Training(defaults(CategoryPairs(), **(SMALL | values)), seed) for seed in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_leak_of_what_is_not_finite_is_found(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in (FirstOrder, Lbfgs):
        monkeypatch.setattr(rule, "advance", _leaking(rule))
    with pytest.raises(AssertionError, match="category_pairs: a training that turned non-finite changed its neighb"):
        check_lanes_are_isolated(CategoryPairs(), _trainings(optimizer=optimizer))


def _leaking(rule: type[FirstOrder] | type[Lbfgs]):  # type: ignore[no-untyped-def]
    """The rule's `advance` with gradients to which 0 times those of the other lanes is added."""
    advance = rule.advance

    def leaking(self: Any, parameters: State, evaluate: Evaluate, stop: int, most_evaluations: int) -> bool:
        def evaluate_leaking(parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
            loss, gradients = evaluate(parameters, step, lanes)
            return loss, {name: value + 0.0 * value.sum() for name, value in gradients.items()}

        return advance(self, parameters, evaluate_leaking, stop, most_evaluations)

    return leaking


def _is_best(evidence: Evidence) -> NDArray[np.bool_]:
    loss = evidence.metrics["eval_loss"]
    return np.asarray(loss == loss.min(axis=0))


class Ranked(CategoryPairs):
    """A workload that labels the best training of a pack as solved."""

    verdicts = VerdictTable((Rule(outcome="solved", when=lambda _, evidence: _is_best(evidence)),))


@pytest.mark.slow
def test_a_verdict_that_depends_on_the_pack_is_found() -> None:
    with pytest.raises(AssertionError, match=r"differ between packs: outcome (solved|plateau) and "):
        check_fused_equals_alone(Ranked(), _trainings(stop_when_solved=False))


class Accumulating(CategoryPairs):
    """A workload that reads its data sequentially: a batch depends on the number of earlier draws."""

    def __init__(self) -> None:
        self._n_drawn = 0

    def batches(self, lanes: Lanes[CategoryPairsParameters], steps: range) -> list[Batch]:
        self._n_drawn = self._n_drawn + 1 if steps[0] else 0
        return [self.batch(lanes, self._n_drawn)]


@pytest.mark.slow
def test_what_is_kept_from_step_to_step_is_found() -> None:
    trainings = _trainings(variant="categories_only", expectation="sampled", optimizer="adam")
    check_same_seed_same_result(Accumulating(), trainings)
    with pytest.raises(AssertionError, match=r"resumed from a checkpoint ends differently: loss by .* keep something"):
        check_resumed_equals_undisturbed(Accumulating(), trainings)


X = torch.ones(2, 4, dtype=torch.float64)
STOCK = {"with biases": lambda _: torch.nn.Linear(4, 3), "without": lambda _: torch.nn.Linear(4, 3, bias=False)}


class Noisy(AnyModule):
    """A workload whose measure draws from the global generator."""

    def measure(self, module: torch.nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"noise": NOISE[0] + super().loss(module, batch)}

    def eval_batch(self, lanes: Lanes[AnyParameters]) -> Batch:
        NOISE[0] = torch.rand(())
        return super().eval_batch(lanes)


NOISE = [torch.zeros(())]


def test_a_measure_that_draws_from_the_global_generator_is_found() -> None:
    workload = Noisy(STOCK["without"], lambda module: module(X))
    with pytest.raises(
        AssertionError, match=r"two runs of the same pack differ: noise by .*; outside of `model`, draw all"
    ):
        check_same_seed_same_result(workload, [Training(AnyParameters(n_steps=2), 0)])


def test_a_loss_that_is_not_one_for_many_trainings_fails_with_one_sentence() -> None:
    workload = AnyModule(STOCK["without"], lambda module: torch.nn.functional.rrelu(module(X), training=True))
    with pytest.raises(
        AssertionError, match=r"^any_module: a check failed: test_testing\.py, line \d+: got 'an operation that"
    ):
        check_workload(workload, [AnyParameters()], quick=True)
