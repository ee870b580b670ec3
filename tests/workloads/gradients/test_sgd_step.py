"""A step of gradient descent moves what is conserved by what the gradient predicts, unless something is wrong."""

import pytest
from torch import Tensor

from attnsweep import defaults
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.gradients import check
from attnsweep.workloads.gradients.check import Finding, check_sgd_step
from attnsweep.workloads.gradients.subject import at_random_weights
from attnsweep.workloads.identities import Group
from attnsweep.workloads.update_rules import UPDATE_RULES, Tensors, UpdateRule
from tests.workloads.gradients.small_workload import SmallWorkload

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

    monkeypatch.setattr(check, "UPDATE_RULES", {"sgd": UpdateRule(update=along_signs)})
    assert {"sum", "charge_qk", "charge_low_rank"} <= failed()


def test_the_squared_rate_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "moved", lambda self, gradients: 0.0 * self.charge(gradients))
    assert failed() == {"charge_qk", "charge_low_rank"}
